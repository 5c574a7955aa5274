/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange `in_place`, for ranks that share memory: rows of other ranks are used where they lie. A rank packs k and
 * v, reads q and writes o in the tensors of their owners. In a ring each rank packs its own shard once, for every rank
 * that computes with it. The results have the same bits as with messages.
 *
 * The exchange `mixed` uses the rows of the ulysses axis in this way, and sends messages along the ring (message.h). */
#ifndef ITH_ATTENTION_IN_PLACE_H
#define ITH_ATTENTION_IN_PLACE_H

#include "../schedule/schedule.h"
#include "cpu/sweep.h"

/* The addresses that a rank shows the others at the opening of an execution. */
typedef struct ith_in_place_record {
    ith_rows q, k, v, o;
    float *lse;
    /* the packed keys and values of this rank's shard, if each rank packs for all ranks; otherwise NULL */
    const char *packed;
    _Atomic int64_t *sent; /* counts the bytes that other ranks take from this rank's memory */
} ith_in_place_record;

/* The rows of all ranks, at the addresses that the ranks have shown: arrays of the ranks on this rank's ulysses axis,
 * and a shard for each index on the ring axis. In the exchange `mixed` only the arrays are used. */
typedef struct ith_in_place {
    const ith_attn_setting *setting;
    ith_q_segment *q_segments;   /* [ulysses]: queries of each rank on this rank's ulysses axis */
    ith_kv_segment *kv_segments; /* [ulysses]: keys and values of each rank on this rank's ulysses axis */
    ith_shard *ring;             /* [ring]: the keys and values that the ranks of each ring index hold together */
    /* [ring]: the shards that COMPUTE steps have named so far, in the order of the steps */
    ith_shard *shards;
    int shard_count; /* number of elements in `shards` so far */
} ith_in_place;

/* Whether an execution uses the tensors of other ranks where they lie: the tensors of all ranks, or of the ranks on the
 * ulysses axis. */
static inline bool ith_in_place_used(const ith_attn_setting *setting)
{
    return setting->exchange == ITH_EXCHANGE_IN_PLACE || setting->exchange == ITH_EXCHANGE_MIXED;
}

/* Takes the arrays of an ith_in_place from the arena. ith_in_place_meet fills them in later. */
void ith_in_place_lay_out(const ith_attn_setting *setting, ith_arena *arena, ith_in_place *out);

/* Stores the addresses that rank `rank` shows at the opening of an execution. To be called for every rank. */
void ith_in_place_meet(ith_in_place *in_place, int rank, const ith_in_place_record *record);

/* Sets *queries and *shard to the queries and the shard of keys that an OFFSETS or COMPUTE step of the schedule works
 * on. */
void ith_in_place_find(const ith_in_place *in_place, const ith_step *step, ith_queries *queries, ith_shard *shard);
/* Executes a COMPUTE step, whose job is `job`. In a ring, the first step packs this rank's shard for all ranks. Since
 * all shards can then be read at any time, the steps only collect shards, and the last step attends to all of them at
 * once. So no partial results are kept. Collective over comm. */
ith_status ith_in_place_compute(ith_in_place *in_place, ith_sweep *sweep, const ith_step *step,
                                const ith_sweep_job *job);

#endif
