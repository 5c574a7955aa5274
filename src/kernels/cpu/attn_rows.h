/* SPDX-License-Identifier: Apache-2.0 */
/* The queries of a call as rows, for kernels with keys, or elements of o, in the lanes of their vectors. The kernel
 * computes s, p and o = o scale + p v; the state before, between and after is here, in static
 * inline functions. Include a vec_<isa>.h before this header (see attn_state.h). */
#ifndef ITH_KERNELS_ATTN_ROWS_H
#define ITH_KERNELS_ATTN_ROWS_H

#include "attn_state.h"

typedef struct query_rows {
    const ith_attn_call *call;
    int64_t rows; /* queries, and padding up to a whole tile */
    int64_t o_stride, s_stride;
    float *o;     /* [rows][o_stride], unnormalised */
    float *s;     /* [rows][s_stride]: logits in base 2 of a block of keys, then their probabilities */
    float *top;   /* [rows][LANES]: maxima of the logits of a block, lane by lane (online) */
    float *l;     /* [rows][LANES]: sums, lane by lane */
    float *m;     /* [rows] */
    float *shift; /* [rows]: shift_of(m) */
    float *scale; /* [rows]: 2^(m - m'), the factor of older sums */
} query_rows;

/* rows and o_stride are multiples of the kernel's tile. */
static inline query_rows rows_lay_out(ith_arena *arena, int64_t rows, int64_t o_stride, int64_t block_keys)
{
    enum { BYTES = sizeof(float) };
    int64_t whole = ith_round_up(rows, LANES);
    query_rows t = {.rows = rows, .o_stride = o_stride};
    t.s_stride = block_keys + ALIGN_FLOATS; /* rows a power of two apart would share the same sets of the cache */
    t.s = ith_arena_take(arena, rows, t.s_stride * BYTES);
    t.top = ith_arena_take(arena, whole, LANES * BYTES);
    t.l = ith_arena_take(arena, rows, LANES * BYTES);
    t.m = ith_arena_take(arena, whole, BYTES);
    t.shift = ith_arena_take(arena, whole, BYTES);
    t.scale = ith_arena_take(arena, whole, BYTES);
    t.o = ith_arena_take(arena, rows, o_stride * BYTES);
    return t;
}

/* m, l and o of all queries, from earlier calls or empty. The sum l of earlier calls goes into lane 0. */
static inline void rows_load(query_rows *t)
{
    const ith_attn_call *call = t->call;
    for (int64_t i = 0; i < t->rows; i++) {
        float *o = t->o + i * t->o_stride;
        t->m[i] = first_m(call, i);
        t->shift[i] = shift_of(t->m[i]);
        t->scale[i] = 1.0f;
        vec_store(t->l + i * LANES, vec_set(0.0f));
        memset(o, 0, (size_t)t->o_stride * sizeof *o);
        if (!has_state(call, i))
            continue;
        float factor = factor_in(call, i, t->m[i]);
        t->l[i * LANES] = call->l[i] * factor;
        for (int64_t d = 0; d < call->head_dim; d++)
            o[d] = call->o_sum[i * call->head_dim + d] * factor;
    }
}

/* o and lse, or the state, of all queries. */
static inline void rows_store(const query_rows *t)
{
    const ith_attn_call *call = t->call;
    for (int64_t i = 0; i < call->q_rows; i++) {
        float l = vec_hsum(vec_load(t->l + i * LANES)), *o = t->o + i * t->o_stride;
        vec factor = vec_set(factor_out(call, i, t->m[i], l));
        for (int64_t d = 0; d < call->head_dim; d += LANES)
            vec_store(o + d, vec_mul(factor, vec_load(o + d)));
        store_query(call, i, o, t->m[i], l);
    }
}

/* Comes before the kernel takes the maxima of its tiles of s into top. */
static inline void rows_clear_tops(query_rows *t)
{
    for (int64_t i = 0; i < t->rows; i++)
        vec_store(t->top + i * LANES, vec_set(-INFINITY));
}

/* Applies the mask to keys [first, first + keys) of the KV block, and finds the maxima anew. s holds `filled` keys, a
 * multiple of LANES. */
static inline void rows_mask(query_rows *t, int64_t first, int64_t keys, int64_t filled)
{
    for (int64_t i = 0; i < t->rows; i++) {
        float *s = t->s + i * t->s_stride;
        vec top = vec_set(-INFINITY);
        if (i < t->call->q_rows)
            mask_row(t->call, i, s, first, keys);
        for (int64_t j = 0; j < filled; j += LANES)
            top = vec_max(vec_load(s + j), top);
        vec_store(t->top + i * LANES, top);
    }
}

/* The maxima of rows [i, i + LANES). Lanes beyond the last row hold anything. */
static inline vec rows_tops(const query_rows *t, int64_t i)
{
    vec x[LANES];
    for (int64_t n = 0; n < LANES; n++)
        x[n] = vec_load(t->top + (i + n) * LANES);
    vec_transpose(x);
    for (int64_t half = LANES / 2; half > 0; half /= 2)
        for (int64_t n = 0; n < half; n++)
            x[n] = vec_max(x[n], x[n + half]);
    return x[0];
}

/* Raises the maximum of every row, and sets the factor of its older sums. */
static inline void rows_raise_maxima(query_rows *t)
{
    for (int64_t i = 0; i < t->rows; i += LANES) {
        float top[LANES];
        vec_store(top, rows_tops(t, i));
        raise_m(t->m + i, t->shift + i, t->scale + i, top, ith_min64(LANES, t->rows - i));
        vec_store(t->scale + i, vec_exp2(vec_load(t->scale + i)));
    }
}

#endif
