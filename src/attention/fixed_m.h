/* SPDX-License-Identifier: Apache-2.0 */
/* The fixed-m softmax: an offset m_i that replaces the running maximum of a row, and the gate that decides which heads
 * may use it. Let c = scale log2(e), let k' be the mean of the keys that are not masked (0 if keys are not smoothed),
 * and let all logits be in base 2:
 *
 *     m_i = c q_i . k' + ceil(B_i) - 88,   B_i = |c| |q_i| max_j |k_j - k'|
 *
 * By Cauchy-Schwarz no s_ij - m_i exceeds 88, so nothing overflows. The gate keeps underflow below the rounding error
 * of a row. A head passes if, with B = max_i B_i:
 *
 *     G <= 88 + 126 - t - ceil(log2 Skv) + min(0, log2 max|v|),   88 + log2 Skv + max(0, log2 max|v|) < 127
 *
 * G is ceil(B), or ceil(2 B) if keys are not smoothed or if a mask differs between queries; t is 12 for bf16, otherwise
 * 24. A head fails if it has an additive mask or a finite key_bias other than 0. It also fails if its logits are so
 * large that their error in f32 exceeds the room that the second inequality leaves. Heads that fail use the online
 * softmax. Source: maxdiffusion #436; the gate here is stricter (docs/attention.md).
 *
 * Keys are summed in pieces of 512 from the beginning of each shard. So a result does not depend on which rank holds
 * which rows of the shard: ulysses has the bits of a single rank. */
#ifndef ITH_ATTENTION_FIXED_M_H
#define ITH_ATTENTION_FIXED_M_H

#include "../base/arena.h"
#include "source.h"

/* The fixed-m softmax for some heads: statistics of their queries and keys, whether each head passes the gate, and the
 * numbers from which offsets m_i are computed. */
typedef struct ith_fixed_m {
    const ith_attn_setting *setting;
    ith_heads heads; /* the heads that the last ith_fixed_m_prepare measured */
    const struct ith_keyops *ops;
    int ranks;                /* number of ranks whose statistics are gathered */
    double c;                 /* scale log2(e): logits are in base 2 */
    int64_t pieces, q_pieces; /* numbers of pieces of 512 rows in this rank's keys, and in its queries */
    int64_t together;         /* number of kv heads measured at a time */
    double *sums;             /* [together, pieces, head_dim]: the sum of the keys in each piece of 512 rows */
    /* [kv_heads, pieces]: statistics of the keys and values in each piece of 512 rows */
    struct ith_key_piece *keys;
    const void **rows; /* [threads, 2, 512]: pointers to the rows that a thread measures */
    float *queries;    /* [heads, q_pieces]: the largest |q_i|^2 in each piece of 512 queries */
    float *own, *all;  /* the statistics of this rank, and of all ranks [ranks], as they are sent */
    float *means;      /* [kv_heads, head_dim]: the mean keys k' */
    /* [kv_heads]: at least max_j |k_j - k'|, with room for the rounding of c q_i . k' */
    double *bounds;
    bool *applies; /* [heads]: whether the head may use fixed_m, that is, passes the gate */
} ith_fixed_m;

/* Upper bounds of the sizes of the arguments of ith_fixed_m_prepare, by which memory is laid out. */
typedef struct ith_fixed_m_shape {
    int64_t heads, kv_heads; /* query heads and kv heads that are measured in one call */
    int64_t q_rows, kv_rows; /* queries of a head, and keys of this rank's own shard */
} ith_fixed_m_shape;

/* Takes the arrays of an ith_fixed_m from the arena and fills in *out. The arrays stay uninitialised. */
void ith_fixed_m_lay_out(const ith_attn_setting *setting, const ith_fixed_m_shape *shape, ith_arena *arena,
                         ith_fixed_m *out);

/* Measures the queries and keys of `heads` on all of the setting's threads, decides which heads may use fixed_m, and
 * computes the numbers that ith_fixed_m_offsets needs. `own` is this rank's shard of keys and values. Collective over
 * ring_comm, or over all ranks if replicated_kv: after one all-gather every rank has the same offsets and chooses the
 * same softmax. */
ith_status ith_fixed_m_prepare(ith_fixed_m *fixed, const ith_heads *heads, const ith_queries *queries,
                               const ith_shard *own, const ith_attn_tensors *tensors);

/* Statistics that a device has measured, in memory of the host: of the keys and values of this rank's own shard as
 * ith_device_key_stats describes them, and of its queries (ith_device_query_stats). */
typedef struct ith_fixed_m_measured {
    const float *means, *stats, *squares;
} ith_fixed_m_measured;

/* As ith_fixed_m_prepare, with statistics that a device has measured. `measured` may be NULL if the problem has an
 * additive mask. */
ith_status ith_fixed_m_take(ith_fixed_m *fixed, const ith_heads *heads, const ith_fixed_m_measured *measured);
/* The constants by which a device computes offsets (ith_device_offsets). */
void ith_fixed_m_constants(const ith_fixed_m *fixed, double *c, double *norm_factor, double *margin);

/* Whether a query head may use fixed_m, that is, passes the gate. */
bool ith_fixed_m_applies(const ith_fixed_m *fixed, int64_t head);
/* The number of query heads in `heads` that may use fixed_m. */
int64_t ith_fixed_m_count(const ith_fixed_m *fixed, const ith_heads *heads);
/* Computes the offsets m_i of `rows` queries q of a head that may use fixed_m. The offset of a query does not depend on
 * the other queries. Any thread may call this. */
void ith_fixed_m_offsets(const ith_fixed_m *fixed, int64_t head, const void *const *q, int64_t rows, float *m);

#endif
