/* SPDX-License-Identifier: Apache-2.0 */
/* What attention kernels do around their matrix products, for any vector type: reading rows of any type, the state of a
 * pass between blocks of keys and between runs, masks, the online maximum, weights, output.
 *
 *     m' = max(m, max_j s_j),   p_j = 2^(s_j - m'),   l = l 2^(m - m') + sum_j p_j       online
 *     m as given,               p_j = 2^(s_j - m),    l = l + sum_j p_j                  fixed_m
 *
 * over the keys j of a block, per query. The kernel computes s and o = o 2^(m - m') + p v.
 *
 * An m that is given is rounded to an integer inside a run (state that goes in or out is multiplied by what is between
 * the two), so that s - m is never rounded: 2^(s - m) is 2^s with another exponent. In f32 that matters, for s - m may
 * be as large as 88 where it counts, and has lost bits of s. A running maximum stays as it is: s - m is exact near it,
 * and the weight of a lone key is 1.
 *
 * Included after a vec_<isa>.h, which defines
 *   vec, LANES                     a vector of LANES floats
 *   vec_load, vec_store            64-byte aligned or not
 *   vec_prefetch(address)          into the second-level cache
 *   vec_set, vec_fma(a, b, c) = a b + c, vec_add, vec_sub, vec_mul
 *   vec_max(a, b)                  b where a is NaN
 *   vec_exp2(x)                    0 at -inf, NaN stays; x <= 127
 *   vec_exp2_whole(s, m)           2^(s - m) for an integer m, without rounding s - m
 *   vec_hsum                       over the lanes
 *   vec_load_bf16, vec_load_f16    LANES 16-bit numbers as f32
 *   vec_transpose(vec [LANES])     in place */
#ifndef ITH_KERNELS_ATTN_PASS_H
#define ITH_KERNELS_ATTN_PASS_H

#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../kernel.h"

#include <float.h>
#include <math.h>

enum { ALIGN_FLOATS = 16 };

/* ---- Reading rows ---------------------------------------------------------------------------------------------- */

/* Any 16-bit or f32 problem. */
static inline bool attn_takes(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return head_dim >= 1 && head_dim <= ITH_ATTN_HEAD_DIM_MAX &&
           (dtype == ITH_F32 || dtype == ITH_BF16 || dtype == ITH_F16) &&
           (softmax == ITH_SOFTMAX_ONLINE || softmax == ITH_SOFTMAX_FIXED_M);
}

/* A bias or mask in base 2; what is finite stays so. */
static inline float to_base2(float x)
{
    float y = x * (float)M_LOG2E;
    y = y < -FLT_MAX && x >= -FLT_MAX ? -FLT_MAX : y;
    return y > FLT_MAX && x <= FLT_MAX ? FLT_MAX : y;
}

/* `count` (at most LANES) numbers as f32, zeros behind them. */
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

/* Elements d to d + LANES of a row of D, zeros behind its end; of an absent row zeros. */
static inline vec load_part(const char *row, ith_dtype dtype, int64_t d, int64_t D)
{
    if (row == NULL)
        return vec_set(0.0f);
    return load_some(row + d * ith_dtype_bytes(dtype), dtype, ith_min64(LANES, D - d));
}

/* Is key j of this packing there? Beyond its end none is. */
static inline bool key_present(const ith_attn_pack *p, int64_t j)
{
    return j < p->keys && p->k[j] != NULL && !(p->key_bias != NULL && p->key_bias[j] == -INFINITY);
}

/* Row j of k or v, NULL if the key is absent. */
static inline const char *key_row(const ith_attn_pack *p, const void *const *rows, int64_t j)
{
    return key_present(p, j) ? rows[j] : NULL;
}

/* What is added to the logits of key j, in base 2; -inf if it is absent. */
static inline float key_bias2(const ith_attn_pack *p, int64_t j)
{
    if (!key_present(p, j))
        return -INFINITY;
    return p->key_bias != NULL ? to_base2(p->key_bias[j]) : 0.0f;
}

/* That of `count` keys from `first` on. Is any not 0? */
static inline bool pack_biases(float *b, const ith_attn_pack *p, int64_t first, int64_t count)
{
    bool any = false;
    for (int64_t i = 0; i < count; i++) {
        b[i] = key_bias2(p, first + i);
        any = any || !(b[i] == 0.0f);
    }
    return any;
}

/* Bytes of as many panels of `panel_bytes` as hold `keys`; -1 if the number does not fit. */
static inline int64_t packed_panels(int64_t keys, int64_t panel_keys, int64_t panel_bytes)
{
    int64_t bytes;
    if (keys > INT64_MAX - panel_keys || !ith_size_mul(ith_div_up(keys, panel_keys), panel_bytes, &bytes))
        return -1;
    return bytes;
}

/* ---- The state of a pass over the keys of a run ---------------------------------------------------------------- */

typedef struct pass {
    int64_t rows; /* queries, and those that fill up the last tile of them */
    int64_t o_stride, s_stride;
    float *o;     /* [rows][o_stride], unnormalised */
    float *s;     /* [rows][s_stride]: logits in base 2, then weights, of the block's keys */
    float *top;   /* [rows][LANES]: maxima of the block's logits, lane by lane (online) */
    float *l;     /* [rows][LANES]: sums, lane by lane */
    float *m;     /* [rows] */
    float *shift; /* [rows]: m, or 0 where that is not finite */
    float *scale; /* [rows]: 2^(m - m'), what the block multiplies older sums by */
} pass;

/* s rows of a power of two would all fall into the same sets of the cache. */
static inline int64_t pass_s_stride(int64_t block_keys)
{
    return block_keys + ALIGN_FLOATS;
}

/* Floats that pass_in needs; rows and o_stride are multiples of the tile's. */
static inline int64_t pass_floats(int64_t rows, int64_t o_stride, int64_t block_keys)
{
    return rows * (o_stride + pass_s_stride(block_keys) + LANES) + ith_round_up(rows, LANES) * LANES +
           3 * ith_round_up(rows, ALIGN_FLOATS);
}

/* Memory aligned to 64. */
static inline pass pass_in(float *memory, int64_t rows, int64_t o_stride, int64_t block_keys)
{
    pass t = {.rows = rows, .o_stride = o_stride, .s_stride = pass_s_stride(block_keys)};
    t.s = memory;
    t.top = t.s + rows * t.s_stride;
    t.l = t.top + ith_round_up(rows, LANES) * LANES;
    t.m = t.l + rows * LANES;
    t.shift = t.m + ith_round_up(rows, ALIGN_FLOATS);
    t.scale = t.shift + ith_round_up(rows, ALIGN_FLOATS);
    t.o = t.scale + ith_round_up(rows, ALIGN_FLOATS);
    return t;
}

/* 0 instead of what no logit can be measured from: a maximum of nothing (2^(-inf - 0) = 0), the offset of a NaN row. */
static inline float shift_of(float m)
{
    return isfinite(m) ? m : 0.0f;
}

/* 2^(m - m of the pass): what state outside is multiplied by to be state inside. */
static inline float inward(const pass *t, const ith_attn_call *call, int64_t i)
{
    return call->softmax == ITH_SOFTMAX_FIXED_M ? exp2f(shift_of(call->m[i]) - t->shift[i]) : 1.0f;
}

static inline void pass_load_state(pass *t, const ith_attn_call *call)
{
    bool fixed = call->softmax == ITH_SOFTMAX_FIXED_M;
    for (int64_t i = 0; i < t->rows; i++) {
        bool mine = i < call->q_rows, old = mine && !call->first;
        t->m[i] = !mine ? -INFINITY : fixed ? rintf(call->m[i]) : old ? call->m[i] : -INFINITY;
        t->shift[i] = shift_of(t->m[i]);
        t->scale[i] = 1.0f;
        vec_store(t->l + i * LANES, vec_set(0.0f));
        float *o = t->o + i * t->o_stride;
        memset(o, 0, (size_t)t->o_stride * sizeof *o);
        if (!old)
            continue;
        float factor = inward(t, call, i);
        t->l[i * LANES] = call->l[i] * factor;
        for (int64_t d = 0; d < call->head_dim; d++)
            o[d] = call->o_sum[i * call->head_dim + d] * factor;
    }
}

static inline void pass_store_state(const pass *t, const ith_attn_call *call)
{
    for (int64_t i = 0; i < call->q_rows; i++) {
        const float *o = t->o + i * t->o_stride;
        float outward = 1.0f / inward(t, call, i);
        if (call->softmax == ITH_SOFTMAX_ONLINE)
            call->m[i] = t->m[i];
        call->l[i] = vec_hsum(vec_load(t->l + i * LANES)) * outward;
        for (int64_t d = 0; d < call->head_dim; d++)
            call->o_sum[i * call->head_dim + d] = o[d] * outward;
    }
}

static inline void pass_store_output(const pass *t, const ith_attn_call *call)
{
    for (int64_t i = 0; i < call->q_rows; i++) {
        float l = vec_hsum(vec_load(t->l + i * LANES)), *o = t->o + i * t->o_stride;
        bool empty = l == 0.0f; /* no key but hidden ones */
        vec inverse = vec_set(empty ? 0.0f : 1.0f / l);
        for (int64_t d = 0; d < call->head_dim; d += LANES)
            vec_store(o + d, vec_mul(inverse, vec_load(o + d)));
        ith_from_f32(call->o[i], call->dtype, o, call->head_dim);
        if (call->lse != NULL)
            call->lse[i] = empty ? -INFINITY : (t->m[i] + log2f(l)) * (float)M_LN2;
    }
}

/* The end of a run. */
static inline void pass_store(const pass *t, const ith_attn_call *call)
{
    if (call->last)
        pass_store_output(t, call);
    else
        pass_store_state(t, call);
}

/* ---- A block of keys: masks, maxima, weights ------------------------------------------------------------------- */

/* Before the kernel takes the maxima of its tiles of s into top. */
static inline void pass_clear_tops(pass *t)
{
    for (int64_t i = 0; i < t->rows; i++)
        vec_store(t->top + i * LANES, vec_set(-INFINITY));
}

/* top from s, for kernels that did not take it while they had s in registers. keys: a multiple of LANES. */
static inline void pass_find_tops(pass *t, int64_t keys)
{
    for (int64_t i = 0; i < t->rows; i++) {
        vec top = vec_set(-INFINITY);
        for (int64_t j = 0; j < keys; j += LANES)
            top = vec_max(vec_load(t->s + i * t->s_stride + j), top);
        vec_store(t->top + i * LANES, top);
    }
}

/* Whatever s is, also NaN: hidden is hidden. */
static inline float masked_bool(float s, uint8_t shown)
{
    return shown != 0 ? s : -INFINITY;
}

/* A mask that is finite hides nothing, however low the sum. */
static inline float masked_additive(float s, float mask)
{
    float sum = s + to_base2(mask);
    sum = sum < -FLT_MAX ? -FLT_MAX : sum;
    return mask == -INFINITY || s == -INFINITY ? -INFINITY : sum;
}

static inline void pass_row_mask_bool(float *restrict s, const uint8_t *restrict mask, int64_t keys)
{
    for (int64_t j = 0; j < keys; j++)
        s[j] = masked_bool(s[j], mask[j]);
}

static inline void pass_row_mask_additive(float *restrict s, const float *restrict mask, int64_t keys)
{
    for (int64_t j = 0; j < keys; j++)
        s[j] = masked_additive(s[j], mask[j]);
}

/* The mask of keys [first, first + keys) of the run, and the maxima of what is left; `filled` of them, a multiple of
 * LANES, were computed. */
static inline void pass_mask(pass *t, const ith_attn_call *call, int64_t first, int64_t keys, int64_t filled)
{
    for (int64_t i = 0; i < call->q_rows; i++) {
        float *s = t->s + i * t->s_stride;
        if (call->mask_kind == ITH_MASK_BOOL)
            pass_row_mask_bool(s, (const uint8_t *)call->mask[i] + first, keys);
        else
            pass_row_mask_additive(s, (const float *)call->mask[i] + first, keys);
    }
    pass_find_tops(t, filled);
}

/* The maxima of rows [i, i + LANES); behind the last row anything. */
static inline vec pass_tops(const pass *t, int64_t i)
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

/* The new maximum of every row, and what its older sums are multiplied by. */
static inline void pass_maxima(pass *t)
{
    for (int64_t i = 0; i < t->rows; i += LANES) {
        float top[LANES], fall[LANES] = {0};
        vec_store(top, pass_tops(t, i));
        for (int64_t n = 0; n < LANES && i + n < t->rows; n++) {
            float old = t->m[i + n], m = top[n] > old ? top[n] : old;
            t->m[i + n] = m;
            t->shift[i + n] = shift_of(m);
            fall[n] = old - t->shift[i + n];
        }
        vec_store(t->scale + i, vec_exp2(vec_load(fall)));
    }
}

#endif
