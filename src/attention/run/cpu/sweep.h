/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep: some heads' queries over one or more shards of keys and values, on all of the rank's threads.
 *
 * Each shard is cut into KV blocks of block_kv keys from its beginning. A few kv heads at a time are packed,
 * straight from where their rows lie; then every block of their queries attends to all KV blocks, in the order of the
 * shards. What is summed up (o_sum, m, l) lives as long as a block of queries, or, where the shards of a ring come one
 * by one, in the sweep. */
#ifndef ITH_ATTENTION_SWEEP_H
#define ITH_ATTENTION_SWEEP_H

#include "../../fixed_m.h"

/* The most that a sweep may meet. */
typedef struct ith_sweep_shape {
    int64_t heads, kv_heads; /* of ith_heads */
    int64_t q_rows;
    int64_t shard_rows; /* of the longest shard */
    bool keeps_state;   /* several calls meet the same queries */
    bool packs_for_all; /* all kv heads of its own shard by ith_sweep_pack, for every rank that computes with them */
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
    int shard_count;
    const char *const *packed; /* [shard_count]: where ith_sweep_pack has put them, on any rank. NULL: there is one
                                  shard, not packed yet */
    const ith_attn_tensors *tensors; /* for the masks */
    bool first, last;                /* of the calls that meet these queries; o and lse are written by the last */
    void (*progress)(void *user);    /* called by one thread every now and then; NULL: nothing to be moved meanwhile */
    void *progress_user;
} ith_sweep_job;

void ith_sweep_lay_out(const ith_attn_setting *setting, const ith_sweep_shape *shape, ith_arena *arena, ith_sweep *out);
/* Offsets and gates for the queries of the jobs that follow; see ith_fixed_m_prepare. Does nothing for online. */
ith_status ith_sweep_prepare(ith_sweep *sweep, const ith_heads *heads, const ith_queries *queries, const ith_shard *own,
                             const ith_attn_tensors *tensors);
/* Packs the job's only shard, for its kv heads, into sweep->packed: if packs_for_all. */
void ith_sweep_pack(ith_sweep *sweep, const ith_sweep_job *job);
void ith_sweep_run(ith_sweep *sweep, const ith_sweep_job *job);
/* Adds to the counters which softmax the heads that were last prepared take. */
void ith_sweep_count(const ith_sweep *sweep, const ith_heads *heads, ith_plan_counters *counters);

#endif
