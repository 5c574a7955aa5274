/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of other ranks where they lie, for ranks that share memory. A rank packs k and v, reads q and writes o in the
 * tensors of their owners; in a ring it packs its own shard once, for every rank that computes with it. The results
 * have the bits that the same schedule gives by messages. */
#ifndef ITH_ATTENTION_IN_PLACE_H
#define ITH_ATTENTION_IN_PLACE_H

#include "../schedule/schedule.h"
#include "cpu/sweep.h"

/* The addresses that a rank shows the others. */
typedef struct ith_in_place_record {
    ith_rows q, k, v, o;
    float *lse;
    const char *packed;    /* its shard, if it packs for all; otherwise NULL */
    _Atomic int64_t *sent; /* its count of bytes that others take from its memory */
} ith_in_place_record;

typedef struct ith_in_place {
    const ith_attn_setting *setting;
    ith_q_segment *q_segments;   /* [ulysses]: of the ranks that share out their heads with this one */
    ith_kv_segment *kv_segments; /* [ulysses] */
    ith_shard *ring;             /* [ring], by ring index */
    ith_shard *shards;           /* [ring], in the order of the steps */
    int shard_count;
} ith_in_place;

void ith_in_place_lay_out(const ith_attn_setting *setting, ith_arena *arena, ith_in_place *out);

/* At the opening of an execution: what rank `rank` shows. To be called for every rank. */
void ith_in_place_meet(ith_in_place *in_place, int rank, const ith_in_place_record *record);

/* Where the queries and the shard of an OFFSETS or COMPUTE lie. */
void ith_in_place_find(const ith_in_place *in_place, const ith_step *step, ith_queries *queries, ith_shard *shard);
/* A COMPUTE whose job is `job`. All shards are at hand, so that the last one's step passes the queries over all of them
 * at once, and no partial results need to be kept. Collective over comm. */
ith_status ith_in_place_compute(ith_in_place *in_place, ith_sweep *sweep, const ith_step *step,
                                const ith_sweep_job *job);

#endif
