/* SPDX-License-Identifier: Apache-2.0 */
/* The queries of a call as rows, for kernels with keys, or elements of o, in the lanes of their vectors. The kernel
 * computes s, p and o = o scale + p v; the static inline functions here load, update and store the state m, l and o.
 * Include a vec_<isa>.h before this header (see attn_state.h). */
#ifndef ITH_KERNELS_ATTN_ROWS_H
#define ITH_KERNELS_ATTN_ROWS_H

#include "attn_rows_layout.h"
#include "attn_state.h"

/* Sets m, l and o of all queries: to the results of earlier calls or, in the first call, to their initial values. The
 * sum l of earlier calls goes into lane 0. */
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

/* Stores the results of all queries: o and lse in the last call, and m, l and o in every earlier call. */
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

/* Sets the maxima t->top of all rows to -inf, before the logits of a block of keys raise them. */
static inline void rows_clear_tops(query_rows *t)
{
    for (int64_t i = 0; i < t->rows; i++)
        vec_store(t->top + i * LANES, vec_set(-INFINITY));
}

/* Applies the mask to the logits of keys [first, first + keys) of the KV block, and sets t->top to the maxima of the
 * masked logits. Each row of s holds `filled` keys, a multiple of LANES. */
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

/* Returns the largest logits of rows [i, i + LANES), one in each lane. Lanes beyond the last row are undefined. */
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

/* Raises the maximum m of every row to the largest logit of the block, and sets the factor t->scale of its older
 * sums. */
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
