/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep: the queries of some heads attend to one or more shards of keys and values, on all threads of the rank.
 *
 * Each shard is cut into KV blocks of block_kv keys from its beginning. A few kv heads at a time are packed,
 * straight from where their rows lie; then every block of their queries attends to all KV blocks, in the order of the
 * shards. Partial results (o_sum, m, l) live as long as a block of queries. If the shards of a ring come one by one,
 * the sweep keeps them from one call to the next. */
#ifndef ITH_ATTENTION_SWEEP_H
#define ITH_ATTENTION_SWEEP_H

#include "../../fixed_m.h"

/* Upper bounds of the jobs of a sweep. */
typedef struct ith_sweep_shape {
    int64_t heads, kv_heads; /* of ith_heads */
    int64_t q_rows;
    int64_t shard_rows; /* of the longest shard */
    bool keeps_state;   /* several calls have the same queries */
    bool packs_for_all; /* ith_sweep_pack packs all kv heads of the own shard, for all ranks */
} ith_sweep_shape;

typedef struct ith_sweep {
    const ith_attn_setting *setting;
    ith_sweep_shape shape;
    ith_fixed_m fixed;                /* used if the setting's softmax is fixed_m */
    int64_t together;                 /* kv heads packed at a time */
    int64_t block_bytes, shard_bytes; /* packed: a whole KV block, the longest shard */
    int64_t piece_keys;               /* packed by one call */
    int64_t scratch_bytes, thread_bytes;
    char *packed, *threads;
    float *o_sum, *m, *l; /* [heads, q_rows, head_dim], [heads, q_rows]: if keeps_state */
} ith_sweep;

typedef struct ith_sweep_job {
    ith_heads heads;
    const ith_queries *queries;
    const ith_shard *shards;
    int shard_count;                 /* 1, unless they are packed */
    const ith_attn_tensors *tensors; /* for the masks */
    bool first, last;                /* of the calls with these queries; o and lse are written by the last */
    _Atomic int64_t *sent;           /* this rank's count of bytes, for outputs in the memory of others */
    void (*progress)(void *user);    /* called by one thread after each block of queries; NULL: nothing to be done */
    void *progress_user;
} ith_sweep_job;

void ith_sweep_lay_out(const ith_attn_setting *setting, const ith_sweep_shape *shape, ith_arena *arena, ith_sweep *out);
/* Offsets and gates of fixed_m for the queries of the jobs that follow; see ith_fixed_m_prepare. */
ith_status ith_sweep_prepare(ith_sweep *sweep, const ith_heads *heads, const ith_queries *queries, const ith_shard *own,
                             const ith_attn_tensors *tensors);
/* Packs the only shard of a job into sweep->packed, for all its kv heads. */
void ith_sweep_pack(ith_sweep *sweep, const ith_sweep_job *job);
void ith_sweep_run(ith_sweep *sweep, const ith_sweep_job *job);
/* Adds the numbers of heads with each softmax to the counters. */
void ith_sweep_count(const ith_sweep *sweep, const ith_heads *heads, ith_plan_counters *counters);

#endif
