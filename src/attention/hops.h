/* SPDX-License-Identifier: Apache-2.0 */
/* The way of keys and values along a ring, by messages: every rank computes on its own shard first, while the next are
 * on their way.
 *
 * uni    at hop h rank r computes on the shard of rank r - h (mod R), sends it on to r + 1 and receives the next from
 *        r - 1; the last hop sends nothing.
 * bidir  ranks form a line. At hop h rank r computes on the shards of ranks r - h and r + h, those that exist; the
 * first goes on to r + 1, the second to r - 1. No rank gets a shard twice, and none goes round.
 *
 * The order in which partial results are added is a function of the rank alone. */
#ifndef ITH_ATTENTION_HOPS_H
#define ITH_ATTENTION_HOPS_H

#include "run/cpu/sweep.h"
#include "run/transit.h"

typedef struct ith_hops {
    const ith_attn_setting *setting;
    ith_kv_segment *shards; /* [ring]: begin and rows of every rank's, and where it lies at the moment */
    int *order, last;       /* ring indices as they are computed, and the last of them */
    void *buffers[2][2][2]; /* [from the left, from the right][hop parity][k, v] */
    ith_transfer sends[4], receives[4];
    ith_transit *transit; /* of the run under way */
    ith_request *request;
    void (*progress)(void *user); /* of what else is under way */
    void *progress_user;
} ith_hops;

/* The largest shard's rows. */
int64_t ith_hops_most_rows(const ith_attn_setting *setting);
/* Ring indices in the order in which rank ring_index computes on their shards, into order [ring]; returns how many. */
int ith_hops_order(const ith_attn_setting *setting, int *order);

/* kv_heads: the most key problems of a run. spares: whether ith_hops_run will be given a spare buffer. */
void ith_hops_lay_out(const ith_attn_setting *setting, int64_t kv_heads, bool spares, ith_arena *arena,
                      ith_hops *out);
void ith_hops_init(ith_hops *hops);

/* What a run is about. */
typedef struct ith_hops_job {
    ith_heads heads;
    const ith_queries *queries;
    const ith_kv_segment *own; /* this rank's shard */
    int64_t row_heads;         /* key problems side by side in a row of a travelling shard */
    bool own_is_spare;         /* own's memory may take another shard once it has been computed and sent */
    const ith_attn_tensors *tensors;
} ith_hops_job;

/* Collective over ring_comm. */
ith_status ith_hops_run(ith_hops *hops, ith_sweep *sweep, const ith_hops_job *job, ith_transit *transit);

#endif
