/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep: the queries of some heads attend to one or more shards of keys and values, on all threads of the rank.
 *
 * Each shard is divided into KV blocks of block_kv keys from its beginning. A few kv heads at a time are packed,
 * directly from the memory of their rows. Then every block of their queries attends to all KV blocks, in the order of
 * the shards. Partial results (o_sum, m, l) live as long as a block of queries. If the shards of a ring arrive one
 * after another, the sweep keeps partial results from one job to the next. */
#ifndef ITH_ATTENTION_SWEEP_H
#define ITH_ATTENTION_SWEEP_H

#include "../../fixed_m.h"

/* Upper bounds of the sizes of a sweep's jobs (ith_sweep_job), from which the sizes of its buffers follow. */
typedef struct ith_sweep_shape {
    int64_t heads, kv_heads; /* query heads and kv heads of one job */
    int64_t q_rows;          /* queries of a head */
    int64_t shard_rows;      /* rows of the longest shard */
    /* the shards of a ring come in several jobs, between which the partial results are kept */
    bool keeps_state;
    bool packs_for_all; /* ith_sweep_pack packs all kv heads of this rank's shard, for all ranks */
} ith_sweep_shape;

/* The state of a sweep on one rank: the memory for packed keys, partial results and the threads, and the state of
 * fixed_m. */
typedef struct ith_sweep {
    const ith_attn_setting *setting;
    ith_sweep_shape shape;
    /* which heads use fixed_m, and their offsets; used if the setting's softmax is fixed_m */
    ith_fixed_m fixed;
    int64_t together;                 /* number of kv heads packed at a time */
    int64_t block_bytes, shard_bytes; /* packed size of a whole KV block, and of the longest shard */
    int64_t piece_keys;               /* the most keys packed by one call of the kernel */
    int64_t part_rows;                /* queries of a part of a block (ith_sweep_tasks) */
    /* bytes of scratch memory for a kernel call; bytes of all memory of a thread */
    int64_t scratch_bytes, thread_bytes;
    /* packed keys and values of `together` kv heads; memory of all threads */
    char *packed, *threads;
    float *o_sum, *m, *l; /* partial results, if keeps_state: [heads, q_rows, head_dim], [heads, q_rows] */
} ith_sweep;

/* The number of kv heads that are packed before their queries attend: as few as keep all threads busy with blocks of
 * block_q queries. */
int64_t ith_sweep_heads_together(const ith_attn_problem *problem, int64_t kv_heads, int64_t q_rows, int64_t block_q,
                                 int64_t threads);

/* The tasks of a loop in which threads take blocks of queries. A task is a whole block. Only the last blocks are cut
 * into parts, and each part is a task, so that threads end nearly together. */
typedef struct ith_sweep_tasks {
    int64_t whole; /* number of tasks that are whole blocks: blocks 0 to whole - 1 */
    int64_t parts; /* number of parts of each other block; the last parts of a short block have no queries */
    int64_t count; /* number of tasks */
} ith_sweep_tasks;

/* The tasks of a loop over `blocks` blocks. */
ith_sweep_tasks ith_sweep_tasks_of(int64_t blocks, int64_t threads);
/* Sets *block and *part to the block and the part of task number `task`. *part is -1 if the task is a whole block. */
void ith_sweep_task(const ith_sweep_tasks *tasks, int64_t task, int64_t *block, int64_t *part);
/* The queries of a part of a block of block_q queries: a multiple of `step`, the kernel's step of block_q. */
int64_t ith_sweep_part_rows(int64_t block_q, int64_t step);

/* One job of a sweep: the queries of some heads, and the shards of keys and values that they attend to. */
typedef struct ith_sweep_job {
    ith_heads heads;
    const ith_queries *queries;
    const ith_shard *shards;
    int shard_count;                 /* number of shards: 1, unless they are packed already */
    const ith_attn_tensors *tensors; /* read for mask, key_bias and kv_lengths */
    /* whether this is the first or last job with these queries; the last writes o and lse */
    bool first, last;
    /* this rank's count of bytes sent, for outputs in the memory of other ranks */
    _Atomic int64_t *sent;
    void (*progress)(void *user); /* called by one thread after each task; may be NULL */
    void *progress_user;
} ith_sweep_job;

/* Takes the memory of a sweep from the arena and fills in *out. */
void ith_sweep_lay_out(const ith_attn_setting *setting, const ith_sweep_shape *shape, ith_arena *arena, ith_sweep *out);
/* Prepares fixed_m for the queries of the jobs that follow: which heads may use it, and their offsets
 * (ith_fixed_m_prepare). */
ith_status ith_sweep_prepare(ith_sweep *sweep, const ith_heads *heads, const ith_queries *queries, const ith_shard *own,
                             const ith_attn_tensors *tensors);
/* Packs the keys and values of the only shard of a job, with all kv heads of the job, into sweep->packed. */
void ith_sweep_pack(ith_sweep *sweep, const ith_sweep_job *job);
/* Computes the attention of a job's queries to its shards. If a job's only shard is not packed yet, it is packed
 * first. */
void ith_sweep_run(ith_sweep *sweep, const ith_sweep_job *job);

#endif
