/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the queries of a call, for attn_rows.h. The including file defines LANES. */
#ifndef ITH_KERNELS_ATTN_ROWS_LAYOUT_H
#define ITH_KERNELS_ATTN_ROWS_LAYOUT_H

#include "attn_layout.h"

/* The state of the queries of a call, one row for each query. */
typedef struct query_rows {
    const ith_attn_call *call;
    int64_t rows; /* number of queries, rounded up to a whole tile */
    int64_t o_stride, s_stride;
    float *o;     /* [rows][o_stride]: unnormalised outputs */
    float *s;     /* [rows][s_stride]: logits in base 2 of a block of keys, then their probabilities */
    float *top;   /* [rows][LANES]: lane-wise maxima of the logits of a block of keys (online) */
    float *l;     /* [rows][LANES]: lane-wise sums of probabilities */
    float *m;     /* [rows]: maximum so far (online), or the given offset (fixed_m) */
    float *shift; /* [rows]: shift_of(m), which is subtracted from logits */
    /* [rows]: the factor 2^(m - m') by which older sums are multiplied when the maximum rises from m to m'. */
    float *scale;
} query_rows;

/* Takes the memory of a query_rows from an arena. rows and o_stride must be multiples of the kernel's tile. */
static inline query_rows rows_lay_out(ith_arena *arena, int64_t rows, int64_t o_stride, int64_t block_keys)
{
    enum { BYTES = sizeof(float) };
    int64_t whole = ith_round_up(rows, LANES);
    query_rows t = {.rows = rows, .o_stride = o_stride};
    /* If the rows of s were a power of two apart, they would compete for the same sets of the cache. */
    t.s_stride = block_keys + ALIGN_FLOATS;
    t.s = ith_arena_take(arena, rows, t.s_stride * BYTES);
    t.top = ith_arena_take(arena, whole, LANES * BYTES);
    t.l = ith_arena_take(arena, rows, LANES * BYTES);
    t.m = ith_arena_take(arena, whole, BYTES);
    t.shift = ith_arena_take(arena, whole, BYTES);
    t.scale = ith_arena_take(arena, whole, BYTES);
    t.o = ith_arena_take(arena, rows, o_stride * BYTES);
    return t;
}

#endif
