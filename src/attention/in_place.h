/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies among ranks of one process: nothing is sent. A rank packs keys and values, reads queries and writes
 * outputs where their owner has them, and in a ring computes with what others have packed; the strategy says which
 * heads and which queries are its work, and in which order it meets the keys. The results have the bits that the same
 * strategy gives by messages. */
#ifndef ITH_ATTENTION_IN_PLACE_H
#define ITH_ATTENTION_IN_PLACE_H

#include "run/cpu/sweep.h"

/* What a rank shows the others. */
typedef struct ith_in_place_card {
    ith_rows q, k, v, o;
    float *lse;
    const char *packed; /* its shard of keys and values, in a ring */
} ith_in_place_card;

typedef struct ith_in_place {
    const ith_attn_setting *setting;
    ith_in_place_card *cards;    /* [ranks] */
    ith_q_segment *q_segments;   /* [ulysses]: of the ranks whose queries are shared out among them */
    ith_kv_segment *kv_segments; /* [ranks] */
    ith_shard *shards;           /* [ring], in the order in which they are computed */
    int *order;                  /* [ring] */
    const char **packed;         /* [ring], in that order */
    int shard_count;
    int64_t q_rows;
} ith_in_place;

void ith_in_place_lay_out(const ith_attn_setting *setting, ith_arena *arena, ith_in_place *out);
void ith_in_place_init(ith_in_place *in_place);
/* The sweep's shape for what ith_in_place_run asks of it. */
ith_sweep_shape ith_in_place_shape(const ith_attn_setting *setting);

/* What this rank is to show. */
ith_in_place_card ith_in_place_show(const ith_in_place *in_place, const ith_sweep *sweep,
                                    const ith_attn_tensors *tensors);
/* Collective over comm, between ith_comm_begin_call and ith_comm_end_call, with the cards of all ranks in in_place->cards. Adds
 * to the counters. */
ith_status ith_in_place_run(ith_in_place *in_place, ith_sweep *sweep, const ith_attn_tensors *tensors,
                            ith_plan_counters *counters);

#endif
