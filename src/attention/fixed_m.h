/* SPDX-License-Identifier: Apache-2.0 */
/* The fixed-m softmax: an offset m_i that replaces the running maximum of a row, and the gate that says which heads may
 * use it. With c = scale log2(e), k' the mean of the keys that are not masked (0 if keys are not smoothed), and all
 * logits in base 2:
 *
 *     m_i = c q_i . k' + ceil(B_i) - 88,   B_i = c |q_i| max_j |k_j - k'|
 *
 * No s_ij - m_i exceeds 88 (Cauchy-Schwarz), so nothing overflows. The gate keeps underflow below the rounding error of
 * a row. For each head, with B = max_i B_i:
 *
 *     G <= 88 + 126 - t - ceil(log2 Skv) + min(0, log2 max|v|),   88 + log2 Skv + max(0, log2 max|v|) < 127
 *
 * G = ceil(B), or ceil(2 B) if keys are not smoothed or with a mask that differs between queries; t = 12 for bf16,
 * otherwise 24. Heads with a finite key_bias other than 0 or with an additive mask fail. So do heads whose logits are
 * so large that the error of f32 exceeds the room that the second inequality leaves. Heads that fail take the online
 * softmax. Source: maxdiffusion #436; the gate is stricter than theirs (docs/attention.md).
 *
 * Sums over keys run in pieces of fixed length from the beginning of each shard. So a result does not depend on which
 * rank holds which segment: ulysses has the bits of a single rank. */
#ifndef ITH_ATTENTION_FIXED_M_H
#define ITH_ATTENTION_FIXED_M_H

#include "../base/arena.h"
#include "run/cpu/source.h"

/* Statistics of the keys and queries of some heads. */
typedef struct ith_fixed_m {
    const ith_attn_setting *setting;
    ith_heads heads; /* of the last ith_fixed_m_prepare */
    const struct ith_keyops *ops;
    int ranks; /* that use the same offsets */
    double c;
    int64_t pieces, q_pieces;   /* of the longest shard and of a query head */
    int64_t together;           /* kv heads measured at a time */
    double *sums;               /* [together, pieces, head_dim] */
    struct ith_key_piece *keys; /* [kv_heads, pieces] */
    float *queries;             /* [heads, q_pieces]: the largest |q_i|^2 */
    float *own, *all;           /* this rank's message, and all messages [ranks] */
    float *means;               /* [kv_heads, head_dim]: k' */
    double *bounds;             /* [kv_heads]: at least max_j |k_j - k'|, with room for the rounding of c q_i . k' */
    bool *applies;              /* [heads] */
} ith_fixed_m;

/* Upper bounds of the arguments of ith_fixed_m_prepare. */
typedef struct ith_fixed_m_shape {
    int64_t heads, kv_heads; /* of ith_heads */
    int64_t q_rows, kv_rows; /* kv_rows: of this rank's own shard */
} ith_fixed_m_shape;

/* Takes what it needs from the arena and initialises nothing but `out` itself. */
void ith_fixed_m_lay_out(const ith_attn_setting *setting, const ith_fixed_m_shape *shape, ith_arena *arena,
                         ith_fixed_m *out);

/* Reads all queries and keys of `heads` once or twice, on all of the setting's threads; `own` is this rank's shard of
 * its ring. Collective over ring_comm, or over all ranks if replicated_kv: one all-gather, after which every rank has
 * the same offsets and takes the same branch. */
ith_status ith_fixed_m_prepare(ith_fixed_m *fixed, const ith_heads *heads, const ith_queries *queries,
                               const ith_shard *own, const ith_attn_tensors *tensors);

/* Whether a query head passes the gate. */
bool ith_fixed_m_applies(const ith_fixed_m *fixed, int64_t head);
/* m_i of `rows` rows of a query head that passes. A row's depends on that row alone. Any thread. */
void ith_fixed_m_offsets(const ith_fixed_m *fixed, int64_t head, const void *const *q, int64_t rows, float *m);

#endif
