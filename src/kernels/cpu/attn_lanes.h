/* SPDX-License-Identifier: Apache-2.0 */
/* The queries of a run in the lanes of vectors, for kernels that compute
 *
 *     s^T [keys][queries],   o^T [D][queries]
 *
 * so that maxima and sums over keys need no step across lanes. Queries stand in panels of QUERIES, the last of which
 * may be narrower; its width is a multiple of LANES, and queries that fill it up are zeros, computed like the others: a
 * row's arithmetic is the same wherever it stands. The kernel computes s and o = o scale + p v; what is between the
 * two, before and after is here.
 *
 * Besides what attn_pass.h asks for, the including file defines
 *   QUERIES      of a panel, a multiple of LANES
 *   EXP2_SHORT   2^x for weights of 16-bit tensors; vec_exp2 unless defined */
#ifndef ITH_KERNELS_ATTN_LANES_H
#define ITH_KERNELS_ATTN_LANES_H

#include "attn_pass.h"

#ifndef EXP2_SHORT
#define EXP2_SHORT vec_exp2
#endif

/* How a logit s becomes a weight. In f32 a fixed m must not be taken off with a rounding (attn_pass.h). With 16 bits
 * that does not matter, and s begins with -m. */
typedef enum weight_kind { F32_ONLINE, F32_FIXED, SHORT_ONLINE, BEGUN } weight_kind;

typedef struct lanes {
    const ith_attn_call *call;
    weight_kind kind;
    int64_t D, padded;    /* padded: rows of o */
    int64_t rows;         /* queries, and those that fill up the last vector */
    float *o;             /* panels of [padded][width] */
    float *m, *shift, *l; /* [rows], as attn_pass.h has them */
    float *from;          /* [rows]: what logits begin with, -m or 0 */
    float *top, *scale;   /* [QUERIES] of one panel: maxima of the block's logits; 2^(m - m') */
    float *turned;        /* [LANES][D rounded up]: rows of o */
} lanes;

static inline int64_t turned_stride(int64_t D)
{
    return ith_round_up(D, LANES);
}

/* Floats that lanes_in needs. */
static inline int64_t lanes_floats(int64_t q_rows, int64_t D, int64_t padded)
{
    return ith_round_up(q_rows, LANES) * (padded + 4) + QUERIES * 2 + LANES * turned_stride(D);
}

/* Memory aligned to 64. */
static inline lanes lanes_in(float *memory, const ith_attn_call *call, int64_t padded)
{
    lanes t = {.call = call, .D = call->head_dim, .padded = padded, .rows = ith_round_up(call->q_rows, LANES)};
    bool fixed = call->softmax == ITH_SOFTMAX_FIXED_M;
    t.kind = call->dtype == ITH_F32 ? (fixed ? F32_FIXED : F32_ONLINE) : fixed ? BEGUN : SHORT_ONLINE;
    t.top = memory;
    t.scale = t.top + QUERIES;
    t.o = t.scale + QUERIES;
    t.m = t.o + t.rows * padded;
    t.shift = t.m + t.rows;
    t.l = t.shift + t.rows;
    t.from = t.l + t.rows;
    t.turned = t.from + t.rows;
    return t;
}

/* Of the panel that begins at query i. */
static inline int64_t lanes_width(const lanes *t, int64_t i)
{
    return ith_min64(QUERIES, t->rows - i);
}

/* Where o of query i stands. */
static inline float *lanes_o(const lanes *t, int64_t i)
{
    int64_t panel = i / QUERIES * QUERIES;
    return t->o + panel * t->padded + i - panel;
}

/* ---- Into lanes ------------------------------------------------------------------------------------------------ */

/* LANES rows' elements from d on, transposed, times their factors, into the columns of a panel `width` wide. */
static inline void turn_in(float *columns, int64_t width, const char *const *row, ith_dtype dtype, int64_t d, int64_t D,
                           vec factor)
{
    vec block[LANES];
    for (int64_t r = 0; r < LANES; r++)
        block[r] = load_part(row[r], dtype, d, D);
    vec_transpose(block);
    for (int64_t e = 0; e < ith_min64(LANES, D - d); e++)
        vec_store(columns + (d + e) * width, vec_mul(factor, block[e]));
}

/* What a row of state outside is multiplied by to be state inside: 2^(m - m inside). */
static inline float inward_factor(const lanes *t, int64_t i)
{
    return t->call->softmax == ITH_SOFTMAX_FIXED_M ? exp2f(shift_of(t->call->m[i]) - t->shift[i]) : 1.0f;
}

/* m, l and o of queries [i, i + LANES), from outside or from nothing. */
static inline void load_lanes(lanes *t, int64_t i)
{
    const ith_attn_call *call = t->call;
    const char *row[LANES];
    float factor[LANES];
    for (int64_t n = 0; n < LANES; n++) {
        bool mine = i + n < call->q_rows, old = mine && !call->first, fixed = call->softmax == ITH_SOFTMAX_FIXED_M;
        float m = !mine ? -INFINITY : fixed ? rintf(call->m[i + n]) : old ? call->m[i + n] : -INFINITY;
        t->m[i + n] = m;
        t->shift[i + n] = shift_of(m);
        t->from[i + n] = t->kind == BEGUN ? -t->shift[i + n] : 0.0f;
        factor[n] = old ? inward_factor(t, i + n) : 0.0f;
        t->l[i + n] = old ? call->l[i + n] * factor[n] : 0.0f;
        row[n] = old ? (const char *)(call->o_sum + (i + n) * t->D) : NULL;
    }
    float *o = lanes_o(t, i);
    int64_t width = lanes_width(t, i / QUERIES * QUERIES);
    for (int64_t d = 0; d < t->D; d += LANES)
        turn_in(o, width, row, ITH_F32, d, t->D, vec_load(factor));
    for (int64_t d = t->D; d < t->padded; d++)
        vec_store(o + d * width, vec_set(0.0f));
}

static inline void lanes_load(lanes *t)
{
    for (int64_t i = 0; i < t->rows; i += LANES)
        load_lanes(t, i);
}

/* ---- Out of lanes ---------------------------------------------------------------------------------------------- */

/* The rows of o whose columns stand at o, times factor, into `turned`. */
static inline void turn_out(const lanes *t, const float *o, int64_t width, const float *factor)
{
    for (int64_t d = 0; d < t->D; d += LANES) {
        vec block[LANES];
        for (int64_t e = 0; e < LANES; e++)
            block[e] = d + e < t->D ? vec_mul(vec_load(factor), vec_load(o + (d + e) * width)) : vec_set(0.0f);
        vec_transpose(block);
        for (int64_t n = 0; n < LANES; n++)
            vec_store(t->turned + n * turned_stride(t->D) + d, block[n]);
    }
}

/* o and lse, or the state, of queries [i, i + LANES). */
static inline void store_lanes(const lanes *t, int64_t i)
{
    const ith_attn_call *call = t->call;
    float factor[LANES];
    for (int64_t n = 0; n < LANES; n++) {
        float l = t->l[i + n];
        factor[n] = !call->last ? (i + n < call->q_rows ? 1.0f / inward_factor(t, i + n) : 0.0f)
                    : l == 0.0f ? 0.0f
                                : 1.0f / l;
    }
    turn_out(t, lanes_o(t, i), lanes_width(t, i / QUERIES * QUERIES), factor);
    for (int64_t n = 0; n < LANES && i + n < call->q_rows; n++) {
        const float *row = t->turned + n * turned_stride(t->D);
        float m = t->m[i + n], l = t->l[i + n];
        if (call->last) {
            ith_from_f32(call->o[i + n], call->dtype, row, t->D);
            if (call->lse != NULL) /* l = 0: no key but hidden ones */
                call->lse[i + n] = l == 0.0f ? -INFINITY : (m + log2f(l)) * (float)M_LN2;
            continue;
        }
        memcpy(call->o_sum + (i + n) * t->D, row, (size_t)t->D * sizeof *row);
        call->l[i + n] = l * factor[n];
        if (call->softmax == ITH_SOFTMAX_ONLINE)
            call->m[i + n] = m;
    }
}

static inline void lanes_store(const lanes *t)
{
    for (int64_t i = 0; i < t->rows; i += LANES)
        store_lanes(t, i);
}

/* ---- A block of keys and the panel of queries that begins at query i: s is [keys][stride] ----------------------- */

static inline void lanes_fill(float *x, float value)
{
    for (int64_t n = 0; n < QUERIES; n++)
        x[n] = value;
}

/* top from s. */
static inline void lanes_find_top(lanes *t, const float *s, int64_t stride, int64_t keys, int64_t i)
{
    for (int64_t n = 0; n < lanes_width(t, i); n += LANES) {
        vec top = vec_set(-INFINITY);
        for (int64_t j = 0; j < keys; j++)
            top = vec_max(vec_load(s + j * stride + n), top);
        vec_store(t->top + n, top);
    }
}

/* The mask of keys [first, first + keys) of the run. */
static inline void lanes_mask(const lanes *t, float *s, int64_t stride, int64_t first, int64_t keys, int64_t i)
{
    const ith_attn_call *call = t->call;
    for (int64_t n = 0; n < lanes_width(t, i) && i + n < call->q_rows; n++) {
        float *x = s + n;
        const uint8_t *shown = call->mask[i + n];
        const float *added = call->mask[i + n];
        for (int64_t j = 0; j < keys; j++, x += stride)
            *x = call->mask_kind == ITH_MASK_BOOL ? masked_bool(*x, shown[first + j])
                                                  : masked_additive(*x, added[first + j]);
    }
}

/* The new maxima from top (online), what older sums are multiplied by, and l times that. */
static inline void lanes_raise_maxima(lanes *t, int64_t i)
{
    int64_t width = lanes_width(t, i);
    float *m = t->m + i, *shift = t->shift + i;
    if (t->call->softmax != ITH_SOFTMAX_ONLINE)
        return;
    for (int64_t n = 0; n < width; n++) {
        float old = m[n];
        m[n] = t->top[n] > old ? t->top[n] : old;
        shift[n] = shift_of(m[n]);
        t->scale[n] = old - shift[n];
    }
    for (int64_t n = 0; n < width; n += LANES) {
        vec scale = vec_exp2(vec_load(t->scale + n));
        vec_store(t->scale + n, scale);
        vec_store(t->l + i + n, vec_mul(scale, vec_load(t->l + i + n)));
    }
}

static inline __attribute__((always_inline)) vec weight_of(vec s, vec m, const weight_kind kind)
{
    switch (kind) {
    case F32_ONLINE: return vec_exp2(vec_sub(s, m));
    case F32_FIXED: return vec_exp2_whole(s, m);
    case SHORT_ONLINE: return EXP2_SHORT(vec_sub(s, m));
    default: return EXP2_SHORT(s);
    }
}

#endif
