/* SPDX-License-Identifier: Apache-2.0 */
/* The fixed-m softmax: what stands in for a row's maximum, and where it may. With c = scale log2(e), k' the mean of the
 * keys that are not masked (0 if keys are not smoothed), and all logits in base 2:
 *
 *     m_i = c q_i . k' + ceil(B_i) - 88,   B_i = c |q_i| max_j |k_j - k'|
 *
 * No s_ij - m_i exceeds 88 (Cauchy-Schwarz), so that nothing overflows; nothing that matters underflows where the gate
 * holds, for each head problem on B = max_i B_i:
 *
 *     G <= 88 + 126 - t - ceil(log2 Skv) + min(0, log2 max|v|),   88 + log2 Skv + max(0, log2 max|v|) < 127
 *
 * G = ceil(B), or ceil(2 B) if keys are not smoothed or with a mask that differs between queries; t = 12 for bf16,
 * otherwise 24. A finite key_bias other than 0, or an additive mask, is never let through. Nor are logits so large,
 * keys' common part included, that f32 can be off by more than the room that the second inequality leaves. Heads that
 * fail take the online softmax. Source: maxdiffusion #436; the gate is stricter than theirs (docs/attention.md).
 *
 * Sums over keys run in pieces of fixed length from the beginning of each shard, so that a result does not depend on
 * who holds which segment: ulysses has the bits of a single rank. */
#ifndef ITH_ATTENTION_FIXED_M_H
#define ITH_ATTENTION_FIXED_M_H

#include "../base/arena.h"
#include "source.h"

/* What is known of a group's keys and queries. */
typedef struct ith_fixed_m {
    const ith_attn_setting *setting;
    ith_heads heads; /* of the last ith_fixed_m_prepare */
    const struct ith_keyops *ops;
    int ranks; /* that take the same branch */
    double c;
    int64_t pieces, q_pieces;   /* of the longest shard and of a query problem */
    int64_t together;           /* key problems that are gone through at a time */
    double *sums;               /* [together, pieces, head_dim] */
    struct ith_key_piece *keys; /* [keys_count, pieces] */
    float *queries;             /* [problems, q_pieces]: the largest |q_i|^2 */
    float *own, *all;           /* what a rank knows of its shard, and what all know: [ranks] of it */
    float *means;               /* [keys_count, head_dim]: k' */
    double *bounds;             /* [keys_count]: at least max_j |k_j - k'|, with room for the rounding of c q_i . k' */
    bool *applies;              /* [problems] */
} ith_fixed_m;

/* The most that a later ith_fixed_m_prepare may bring. */
typedef struct ith_fixed_m_shape {
    int64_t problems, keys_count; /* of ith_heads */
    int64_t q_rows, kv_rows;      /* kv_rows: of this rank's own shard */
} ith_fixed_m_shape;

/* Takes what it needs from the arena and initialises nothing but `out` itself. */
void ith_fixed_m_lay_out(const ith_attn_setting *setting, const ith_fixed_m_shape *shape, ith_arena *arena,
                         ith_fixed_m *out);

/* Reads all queries and keys of `heads` once or twice, on all of the setting's threads; `own` is this rank's shard of
 * its ring. Collective over ring_comm, or over all ranks if replicated_kv: one all-gather, after which every rank has
 * the same offsets and takes the same branch. */
ith_status ith_fixed_m_prepare(ith_fixed_m *fixed, const ith_heads *heads, const ith_queries *queries,
                               const ith_shard *own, const ith_attn_tensors *tensors);

/* Whether a query problem passes the gate. */
bool ith_fixed_m_applies(const ith_fixed_m *fixed, int64_t problem);
/* m_i of `rows` rows of a query problem that passes. A row's depends on that row alone. Any thread. */
void ith_fixed_m_offsets(const ith_fixed_m *fixed, int64_t problem, const void *const *q, int64_t rows, float *m);

#endif
