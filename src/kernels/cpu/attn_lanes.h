/* SPDX-License-Identifier: Apache-2.0 */
/* The queries of a call in the lanes of vectors, for kernels that compute
 *
 *     s^T [keys][queries],   o^T [D][queries]
 *
 * so that maxima and sums over keys need no step across lanes. The kernel computes s, p and o = o scale + p v; the
 * functions here load, update and store the state m, l and o. Queries stand in panels of QUERIES; in the last panel
 * only the first columns may be used, a multiple of LANES. Padding queries are zeros and are computed like the others,
 * so that the arithmetic of a row is the same wherever it stands.
 *
 * All functions are static inline. Include a vec_<isa>.h before this header (see attn_state.h), and define
 *     QUERIES      number of queries of a panel, a multiple of LANES
 *     EXP2_SHORT   2^x for the probabilities of 16-bit tensors; vec_exp2 unless defined */
#ifndef ITH_KERNELS_ATTN_LANES_H
#define ITH_KERNELS_ATTN_LANES_H

#include "attn_lanes_layout.h"
#include "attn_state.h"

#ifndef EXP2_SHORT
#define EXP2_SHORT vec_exp2
#endif

/* The number of queries in the panel that begins at query i, a multiple of LANES. */
static inline int64_t lanes_width(const query_lanes *t, int64_t i)
{
    return ith_min64(QUERIES, t->rows - i);
}

/* The address of the first element of the output of query i. */
static inline float *lanes_o(const query_lanes *t, int64_t i)
{
    int64_t panel = i / QUERIES * QUERIES;
    return t->o + panel * t->padded + i - panel;
}

/* ---- Into lanes and back --------------------------------------------------------------------------------------- */

/* Writes the transpose of the square `in` of LANES x LANES floats to `out`. The strides are the distances between rows
 * in floats. */
static inline void transpose_square(float *out, int64_t out_stride, const float *in, int64_t in_stride)
{
    vec x[LANES];
    for (int64_t i = 0; i < LANES; i++)
        x[i] = vec_load(in + i * in_stride);
    vec_transpose(x);
    for (int64_t i = 0; i < LANES; i++)
        vec_store(out + i * out_stride, x[i]);
}

/* Reads elements [d, d + LANES) of LANES rows, multiplies row n by factor[n], and writes them, transposed, into columns
 * of a panel. */
static inline void turn_in(float *columns, const char *const *row, ith_dtype dtype, int64_t d, int64_t D, vec factor)
{
    vec x[LANES];
    for (int64_t r = 0; r < LANES; r++)
        x[r] = load_part(row[r], dtype, d, D);
    vec_transpose(x);
    for (int64_t e = 0; e < ith_min64(LANES, D - d); e++)
        vec_store(columns + (d + e) * QUERIES, vec_mul(factor, x[e]));
}

/* Writes the outputs o of LANES queries to t->turned as rows, the row of query n multiplied by factor[n]. */
static inline void turn_out(const query_lanes *t, const float *o, const float *factor)
{
    for (int64_t d = 0; d < t->D; d += LANES) {
        vec x[LANES];
        for (int64_t e = 0; e < LANES; e++)
            x[e] = d + e < t->D ? vec_mul(vec_load(factor), vec_load(o + (d + e) * QUERIES)) : vec_set(0.0f);
        vec_transpose(x);
        for (int64_t n = 0; n < LANES; n++)
            vec_store(t->turned + n * ith_round_up(t->D, LANES) + d, x[n]);
    }
}

/* Sets m, l and o of all queries: to the results of earlier calls or, in the first call, to their initial values. */
static inline void lanes_load(query_lanes *t)
{
    const ith_attn_call *call = t->call;
    bool fixed = call->softmax == ITH_SOFTMAX_FIXED_M;
    t->kind = call->dtype == ITH_F32 ? (fixed ? F32_FIXED : F32_ONLINE) : fixed ? SHORT_FIXED : SHORT_ONLINE;
    for (int64_t i = 0; i < t->rows; i += LANES) {
        const char *row[LANES];
        float factor[LANES], *o = lanes_o(t, i);
        for (int64_t n = 0; n < LANES; n++) {
            bool old = has_state(call, i + n);
            t->m[i + n] = first_m(call, i + n);
            t->shift[i + n] = shift_of(t->m[i + n]);
            t->from[i + n] = t->kind == SHORT_FIXED ? -t->shift[i + n] : 0.0f;
            factor[n] = old ? factor_in(call, i + n, t->m[i + n]) : 0.0f;
            t->l[i + n] = old ? call->l[i + n] * factor[n] : 0.0f;
            row[n] = old ? (const char *)(call->o_sum + (i + n) * t->D) : NULL;
        }
        for (int64_t d = 0; d < t->D; d += LANES)
            turn_in(o, row, ITH_F32, d, t->D, vec_load(factor));
        for (int64_t d = t->D; d < t->padded; d++)
            vec_store(o + d * QUERIES, vec_set(0.0f));
    }
}

/* Writes o and lse of all queries in the last call, otherwise m, l and o. */
static inline void lanes_store(const query_lanes *t)
{
    for (int64_t i = 0; i < t->rows; i += LANES) {
        float factor[LANES];
        for (int64_t n = 0; n < LANES; n++)
            factor[n] = factor_out(t->call, i + n, t->m[i + n], t->l[i + n]);
        turn_out(t, lanes_o(t, i), factor);
        for (int64_t n = 0; n < LANES && i + n < t->call->q_rows; n++)
            store_query(t->call, i + n, t->turned + n * ith_round_up(t->D, LANES), t->m[i + n], t->l[i + n]);
    }
}

/* ---- A block of keys and the panel of queries that begins at query i: s is [keys][stride] ----------------------- */

/* Sets x[n] to `value` for each of the QUERIES queries of a panel. */
static inline void lanes_fill(float *x, float value)
{
    for (int64_t n = 0; n < QUERIES; n++)
        x[n] = value;
}

/* Sets t->top to the largest logit of each query of the panel that begins at query i. */
static inline void lanes_find_top(query_lanes *t, const float *s, int64_t stride, int64_t keys, int64_t i)
{
    for (int64_t n = 0; n < lanes_width(t, i); n += LANES) {
        vec top = vec_set(-INFINITY);
        for (int64_t j = 0; j < keys; j++)
            top = vec_max(vec_load(s + j * stride + n), top);
        vec_store(t->top + n, top);
    }
}

/* Applies the mask of LANES queries from i on to their logits s of keys [first, first + keys) of the KV block. s must
 * have room for a multiple of LANES keys. */
static inline void mask_lanes(const ith_attn_call *call, float *s, int64_t stride, int64_t first, int64_t keys,
                              int64_t i)
{
    enum { WIDE = 64 }; /* number of keys that are masked at a time: long rows make the loops of mask_row fast */
    float rows[LANES * WIDE];
    for (; keys > 0; s += WIDE * stride, first += WIDE, keys -= WIDE) {
        int64_t end = ith_min64(WIDE, keys);
        for (int64_t j = 0; j < end; j += LANES)
            transpose_square(rows + j, WIDE, s + j * stride, stride);
        for (int64_t n = 0; n < LANES && i + n < call->q_rows; n++)
            mask_row(call, i + n, rows + n * WIDE, first, end);
        for (int64_t j = 0; j < end; j += LANES)
            transpose_square(s + j * stride, stride, rows + j, WIDE);
    }
}

/* Applies the mask to the logits s of the panel of queries that begins at query i and of keys [first, first + keys). */
static inline void lanes_mask(const query_lanes *t, float *s, int64_t stride, int64_t first, int64_t keys, int64_t i)
{
    for (int64_t n = 0; n < lanes_width(t, i); n += LANES)
        mask_lanes(t->call, s + n, stride, first, keys, i + n);
}

/* With the online softmax, raises the maxima m of a panel of queries to t->top, sets the factor t->scale of older sums,
 * and multiplies the sums l by it. */
static inline void lanes_raise_maxima(query_lanes *t, int64_t i)
{
    int64_t width = lanes_width(t, i);
    if (t->call->softmax != ITH_SOFTMAX_ONLINE)
        return;
    raise_m(t->m + i, t->shift + i, t->scale, t->top, width);
    for (int64_t n = 0; n < width; n += LANES) {
        vec scale = vec_exp2(vec_load(t->scale + n));
        vec_store(t->scale + n, scale);
        vec_store(t->l + i + n, vec_mul(scale, vec_load(t->l + i + n)));
    }
}

/* The probabilities 2^(s - m) of LANES logits. */
static inline __attribute__((always_inline)) vec probability_of(vec s, vec m, const exp_kind kind)
{
    switch (kind) {
    case F32_ONLINE: return vec_exp2(vec_sub(s, m));
    case F32_FIXED: return vec_exp2_whole(s, m);
    case SHORT_ONLINE: return EXP2_SHORT(vec_sub(s, m));
    default: return EXP2_SHORT(s);
    }
}

#endif
