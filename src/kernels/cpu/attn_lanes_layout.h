/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the queries of a call, for attn_lanes.h. The including file defines LANES, and QUERIES, the number of
 * queries of a panel. */
#ifndef ITH_KERNELS_ATTN_LANES_LAYOUT_H
#define ITH_KERNELS_ATTN_LANES_LAYOUT_H

#include "attn_layout.h"

/* How a logit s becomes the probability 2^(s - m), by the type of the tensors and the softmax. In f32 with a fixed m,
 * s - m must not be rounded (attn_state.h). With 16-bit tensors rounding does not matter: for a fixed m, the sum q . k
 * then starts from -m, so that s is already the difference. */
typedef enum exp_kind { F32_ONLINE, F32_FIXED, SHORT_ONLINE, SHORT_FIXED } exp_kind;

/* The state of the queries of a call, with queries in the lanes of vectors. */
typedef struct query_lanes {
    const ith_attn_call *call;
    exp_kind kind;
    int64_t D, padded; /* head size; head size with padding */
    int64_t rows;      /* number of queries, with padding */
    float *o;          /* unnormalised outputs, in panels [padded][QUERIES] */
    /* [rows] each: the offset m of a query, shift_of(m), and the sum l of its probabilities. */
    float *m, *shift, *l;
    float *from; /* [rows]: the number from which the sum q . k starts, -m or 0 */
    /* [QUERIES] each, for one panel of queries and one block of keys: the largest logit of a query, and the factor
     * 2^(m - m') by which its older sums are multiplied when its maximum rises from m to m'. */
    float *top, *scale;
    float *turned; /* [LANES][D rounded up to LANES]: outputs of LANES queries as rows */
} query_lanes;

/* Takes the memory of a query_lanes from an arena. rows must be a multiple of LANES. */
static inline query_lanes lanes_lay_out(ith_arena *arena, int64_t rows, int64_t D, int64_t padded)
{
    enum { BYTES = sizeof(float) };
    query_lanes t = {.D = D, .padded = padded, .rows = rows};
    t.top = ith_arena_take(arena, QUERIES, BYTES);
    t.scale = ith_arena_take(arena, QUERIES, BYTES);
    t.o = ith_arena_take(arena, ith_round_up(rows, QUERIES), padded * BYTES);
    t.m = ith_arena_take(arena, rows, BYTES);
    t.shift = ith_arena_take(arena, rows, BYTES);
    t.l = ith_arena_take(arena, rows, BYTES);
    t.from = ith_arena_take(arena, rows, BYTES);
    t.turned = ith_arena_take(arena, LANES, ith_round_up(D, LANES) * BYTES);
    return t;
}

#endif
