/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the attention kernels share, for any vector type: reading tensors, the state of a query between calls,
 * masks, the online maximum. For each query, over the keys j of a block,
 *
 *     m' = max(m, max_j s_j),   p_j = 2^(s_j - m'),   l = l 2^(m - m') + sum_j p_j       online
 *     m as given,               p_j = 2^(s_j - m),    l = l + sum_j p_j                  fixed_m
 *
 * The kernel computes s, p and o = o 2^(m - m') + p v.
 *
 * Inside a call, a given m is rounded to an integer. When l and o enter or leave the call, they are multiplied by 2 to
 * the power of the difference. 2^(s - m) is then 2^s with another exponent, and s - m need not be computed. In f32 this
 * matters: s - m may reach 88, and its rounding would lose bits of s. A running maximum is not rounded: near it s - m
 * is exact, and a lone key has p = 1.
 *
 * All functions are static inline. Include a vec_<isa>.h before this header. It defines
 *   vec, LANES                     a vector of LANES floats
 *   vec_load, vec_store            at any address
 *   vec_set, vec_fma(a, b, c) = a b + c, vec_add, vec_sub, vec_mul
 *   vec_max(a, b)                  b where a is NaN
 *   vec_exp2(x)                    0 at -inf, NaN at NaN; x <= 127
 *   vec_exp2_whole(s, m)           2^(s - m) for an integer m, without rounding s - m
 *   vec_hsum                       the sum over the lanes
 *   vec_flush_begin, vec_flush_end between them, results below 2^-126 may become zeros
 *   vec_load_bf16, vec_load_f16    LANES 16-bit numbers as f32
 *   vec_transpose(vec [LANES])     in place */
#ifndef ITH_KERNELS_ATTN_STATE_H
#define ITH_KERNELS_ATTN_STATE_H

#include "../base2.h"
#include "attn_layout.h"

#include <float.h>
#include <math.h>

/* Where the values of a panel of keys reach this magnitude, products p v below 2^-126 may become zeros. */
static const float flush_from = 0x1p-60f;

/* ---- Reading rows ---------------------------------------------------------------------------------------------- */

/* Loads `count` numbers, at most LANES, as f32. The other lanes are zeros. */
static inline vec load_some(const char *x, ith_dtype dtype, int64_t count)
{
    char whole[LANES * sizeof(float)];
    if (count < LANES) {
        size_t bytes = (size_t)(count * ith_dtype_bytes(dtype));
        memset(whole, 0, sizeof whole);
        memcpy(whole, x, bytes);
        x = whole;
    }
    if (dtype == ITH_F32)
        return vec_load((const float *)x);
    return dtype == ITH_BF16 ? vec_load_bf16((const uint16_t *)x) : vec_load_f16((const uint16_t *)x);
}

/* Loads elements [d, d + LANES) of a row of D numbers as f32. Elements beyond D, and all elements of an absent row
 * (NULL), are zeros. */
static inline vec load_part(const char *row, ith_dtype dtype, int64_t d, int64_t D)
{
    if (row == NULL)
        return vec_set(0.0f);
    return load_some(row + d * ith_dtype_bytes(dtype), dtype, ith_min64(LANES, D - d));
}

/* Whether key j of a request to pack keys is present. Keys from number p->keys on, NULL keys and keys with a bias of
 * -inf are absent. */
static inline bool key_present(const ith_attn_pack *p, int64_t j)
{
    return j < p->keys && p->k[j] != NULL && !(p->key_bias != NULL && p->key_bias[j] == -INFINITY);
}

/* Returns row j of k or v in a request to pack keys; NULL if key j is absent. */
static inline const char *key_row(const ith_attn_pack *p, const void *const *rows, int64_t j)
{
    return key_present(p, j) ? rows[j] : NULL;
}

/* The bias of key j times log2(e); -inf if the key is absent. */
static inline float key_bias2(const ith_attn_pack *p, int64_t j)
{
    if (!key_present(p, j))
        return -INFINITY;
    return p->key_bias != NULL ? ith_to_base2(p->key_bias[j]) : 0.0f;
}

/* Writes the biases of `count` keys from `first` on, in base 2, to b. Returns whether any of them is not 0. */
static inline bool pack_biases(float *b, const ith_attn_pack *p, int64_t first, int64_t count)
{
    bool any = false;
    for (int64_t i = 0; i < count; i++) {
        b[i] = key_bias2(p, first + i);
        any = any || !(b[i] == 0.0f);
    }
    return any;
}

/* ---- The state of query i of a call; queries from q_rows on are padding ----------------------------------------- */

/* The offset that is subtracted from the logits of a row with maximum m: m, or 0 if m is not finite. m is -inf while no
 * key was seen, so that 2^(m - 0) = 0; it may also be NaN. */
static inline float shift_of(float m)
{
    return isfinite(m) ? m : 0.0f;
}

/* Whether earlier calls have left a state (m, l and o) for query i. Padding queries have none. */
static inline bool has_state(const ith_attn_call *call, int64_t i)
{
    return i < call->q_rows && !call->first;
}

/* The offset m of query i at the beginning of a call: the given m rounded to an integer (fixed_m), or the maximum so
 * far (online), which is -inf if there is none. */
static inline float first_m(const ith_attn_call *call, int64_t i)
{
    if (i < call->q_rows && call->softmax == ITH_SOFTMAX_FIXED_M)
        return rintf(call->m[i]);
    return has_state(call, i) ? call->m[i] : -INFINITY;
}

/* The factor by which l and o of earlier calls are multiplied when they enter a call: 2^(given m - rounded m) for a
 * fixed m, and 1 with the online softmax. */
static inline float factor_in(const ith_attn_call *call, int64_t i, float m)
{
    return call->softmax == ITH_SOFTMAX_FIXED_M ? exp2f(shift_of(call->m[i]) - shift_of(m)) : 1.0f;
}

/* The factor by which o is multiplied at the end of a call: 1 / l in the last call, otherwise 1 / factor_in. */
static inline float factor_out(const ith_attn_call *call, int64_t i, float m, float l)
{
    if (i >= call->q_rows)
        return 0.0f;
    if (!call->last)
        return 1.0f / factor_in(call, i, m);
    return l == 0.0f ? 0.0f : 1.0f / l; /* l is 0 if all keys are hidden */
}

/* Writes o and lse of query i in the last call, otherwise m, l and o. The caller has multiplied o by factor_out. */
static inline void store_query(const ith_attn_call *call, int64_t i, const float *o, float m, float l)
{
    if (call->last) {
        ith_from_f32(call->o[i], call->dtype, o, call->head_dim);
        if (call->lse != NULL)
            call->lse[i] = ith_lse(m, l);
        return;
    }
    memcpy(call->o_sum + i * call->head_dim, o, (size_t)call->head_dim * sizeof *o);
    call->l[i] = l * factor_out(call, i, m, l);
    if (call->softmax == ITH_SOFTMAX_ONLINE)
        call->m[i] = m;
}

/* ---- Masks and maxima ------------------------------------------------------------------------------------------ */

/* Sets the logits s of hidden keys to -inf, even where s is NaN. */
static inline void mask_row_bool(float *restrict s, const uint8_t *restrict mask, int64_t keys)
{
    for (int64_t j = 0; j < keys; j++)
        s[j] = mask[j] != 0 ? s[j] : -INFINITY;
}

/* Adds a mask to the logits s of a row. Only -inf hides a key: with a finite mask the sum stays finite, however low. */
static inline void mask_row_additive(float *restrict s, const float *restrict mask, int64_t keys)
{
    for (int64_t j = 0; j < keys; j++) {
        float sum = s[j] + ith_to_base2(mask[j]);
        sum = sum < -FLT_MAX ? -FLT_MAX : sum;
        s[j] = mask[j] == -INFINITY || s[j] == -INFINITY ? -INFINITY : sum;
    }
}

/* Applies the mask of query i to its logits s of keys [first, first + keys) of the KV block. */
static inline void mask_row(const ith_attn_call *call, int64_t i, float *s, int64_t first, int64_t keys)
{
    if (call->mask_kind == ITH_MASK_BOOL)
        mask_row_bool(s, (const uint8_t *)call->mask[i] + first, keys);
    else
        mask_row_additive(s, (const float *)call->mask[i] + first, keys);
}

/* Raises the maxima m of `count` queries to `top`, their largest logits in a block of keys. change is the old m minus
 * the new shift; 2^change is the factor of older sums. */
static inline void raise_m(float *m, float *shift, float *change, const float *top, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        float old = m[n];
        m[n] = top[n] > old ? top[n] : old;
        shift[n] = shift_of(m[n]);
        change[n] = old - shift[n];
    }
}

#endif
