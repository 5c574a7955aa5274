/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of bf16 tensors with the bf16 dot products of AVX-512 (VDPBF16PS: two products of bf16 onto a sum
 * in f32).
 *
 *     s_ij = c (q_i . k_j) + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = l_i / l'_i sum_j p'_ij v_j     m_i: attn_state.h
 *
 * where p' is p rounded to bf16 and l' the sum of p'. So o / l is a mean whose weights p' / l' add up to 1, and a lone
 * key returns its value unchanged.
 *
 * q, k and v are multiplied as they are, c is multiplied into the dot product in f32. The instruction reads subnormal
 * numbers as zero: the loss is below 2^-126. A caller that gives a fixed m has checked that no probability that counts
 * is so small (attention/fixed_m.h).
 *
 * Packed: panels of PANEL keys, in words of 32 bits, each b [PANEL], f32 | k in pairs along D, transposed
 * [(D + 1) / 2][PANEL] | v in pairs of keys, in micro-panels of at most TILE_VECS vectors [PANEL / 2][width]. The last
 * panel is padded with absent keys (b = -inf, k = v = 0), an odd D with a zero; D is padded to whole vectors in v.
 *
 * Loops: for each block of block_kv_compute keys,
 *     scores          for each panel of keys, for each tile of ROWS queries: a tile of q k, summed over D in registers;
 *                     then s and its maxima (online, or with a mask), or p and l directly (fixed_m without a mask)
 *     probabilities   for each row of s, if p is not yet computed: applies the mask, raises the maximum, replaces s by
 *                     p, and adds p to l
 *     values          for each micro-panel of v, for each tile of ROWS queries: a tile of o, summed over the keys of
 *                     the block in registers, then o = o 2^(m - m') + tile
 *
 * Padding rows are zeros and are computed like the others, so that the arithmetic of a row is the same wherever it
 * stands. */
#include "attn_bf16_avx512bf16.h"

#include "../avx512/exp2_short_avx512.h"

#include "../attn_fetch.h"
#include "../attn_rows.h"

/* ---- Packing keys and values ----------------------------------------------------------------------------------- */

/* A mask in which the first `count` of 32 bits are set. */
static inline __mmask32 first_of_32(int64_t count)
{
    return count >= 32 ? 0xffffffffu : (1u << count) - 1u;
}

/* Loads LANES pairs of neighbouring numbers of a row, from element d on. Numbers beyond D, and all numbers of an absent
 * row (NULL), are zeros. */
static inline vec load_pairs(const uint16_t *row, int64_t d, int64_t D)
{
    if (row == NULL)
        return vec_set(0.0f);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first_of_32(D - d), row + d));
}

static void pack_keys(float *k, const ith_attn_pack *p, int64_t first)
{
    for (int64_t i = 0; i < PANEL; i += LANES) {
        const void *row[LANES];
        for (int64_t r = 0; r < LANES; r++)
            row[r] = key_row(p, p->k, first + i + r);
        for (int64_t d = 0; d < p->head_dim; d += 2 * LANES) {
            vec x[LANES];
            for (int64_t r = 0; r < LANES; r++)
                x[r] = load_pairs(row[r], d, p->head_dim);
            vec_transpose(x);
            for (int64_t c = 0; c < ith_min64(LANES, pairs_of(p->head_dim - d)); c++)
                vec_store(k + (d / 2 + c) * PANEL + i, x[c]);
        }
    }
}

/* Loads elements [d, d + LANES) of a row of D numbers, each into the lower half of a 32-bit word. Elements beyond D,
 * and all elements of an absent row (NULL), are zeros. */
static inline __m512i load_lower(const uint16_t *row, int64_t d, int64_t D)
{
    if (row == NULL)
        return _mm512_setzero_si512();
    __mmask16 there = (__mmask16)first_of_32(ith_min64(LANES, D - d));
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row + d));
}

/* Packs the values of a panel as pairs of two neighbouring keys, because one instruction multiplies both numbers of a
 * pair. */
static void pack_values(float *v, const ith_attn_pack *p, int64_t first)
{
    int64_t D = p->head_dim, padded = padded_dim(D);
    for (int64_t i = 0; i < PANEL; i += 2) {
        const void *even = key_row(p, p->v, first + i), *odd = key_row(p, p->v, first + i + 1);
        for (int64_t d = 0; d < D; d += LANES) {
            /* The first column and the width of the micro-panel (columns of v that are packed together) with element
             * d. */
            int64_t begin = d / PANEL * PANEL, width = ith_min64(PANEL, padded - begin);
            __m512i upper = _mm512_slli_epi32(load_lower(odd, d, D), 16);
            _mm512_storeu_si512(v + begin * (PANEL / 2) + i / 2 * width + (d - begin),
                                _mm512_or_si512(load_lower(even, d, D), upper));
        }
    }
}

static void pack(const ith_attn_pack *p)
{
    float *panel = (float *)p->packed + p->first / PANEL * panel_words(p->head_dim);
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += panel_words(p->head_dim)) {
        pack_biases(panel, p, first, PANEL);
        pack_keys((float *)panel_keys(panel), p, first);
        pack_values((float *)panel_values(panel, p->head_dim), p, first);
    }
}

/* ---- Queries --------------------------------------------------------------------------------------------------- */

/* Writes the queries to w->q as pairs of neighbouring elements, transposed within each tile of ROWS queries. */
static void load_queries(work *w)
{
    for (int64_t i = 0; i < w->t.rows; i++) {
        const uint16_t *row = i < w->t.call->q_rows ? w->t.call->q[i] : NULL;
        uint32_t *q = w->q + i / ROWS * ROWS * w->pairs + i % ROWS;
        for (int64_t d = 0; d < w->D; d += 2 * LANES) {
            uint32_t x[LANES];
            _mm512_storeu_ps(x, load_pairs(row, d, w->D));
            for (int64_t e = 0; e < ith_min64(LANES, pairs_of(w->D - d)); e++)
                q[(d / 2 + e) * ROWS] = x[e];
        }
    }
}

/* ---- The three loops ------------------------------------------------------------------------------------------- */

/* Adds two products of bf16 numbers, a_0 b_0 + a_1 b_1, to each of LANES sums. */
static inline vec vec_dot(vec sum, vec a, vec b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* Copies one pair of bf16 numbers into every lane. */
static inline vec vec_set_pair(const void *pair)
{
    uint32_t word;
    memcpy(&word, pair, sizeof word);
    return _mm512_castsi512_ps(_mm512_set1_epi32((int)word));
}

/* The arguments of tile_scores and tile_probabilities, for a tile of ROWS queries and PANEL keys. The results are rows
 * of logits or of probabilities, and their maxima or sums. */
typedef struct score_tile {
    float *s; /* rows of logits, or of probabilities as pairs of bf16 */
    int64_t s_stride;
    /* [ROWS][LANES] each, lane-wise: maxima of logits, sums of probabilities, sums of rounded probabilities. */
    float *top, *l, *rounded;
    const float *m; /* [ROWS]: offsets that are subtracted from logits */
    const float *panel;
    const uint32_t *q; /* [pairs][ROWS]: queries, as pairs of neighbouring elements */
    int64_t pairs;
    float c; /* the factor of dot products, scale log2(e) */
} score_tile;

/* Computes the dot products q . k of a tile: sum[r] holds the products of query r. */
static inline __attribute__((always_inline)) void tile_dots(vec sum[ROWS][TILE_VECS], const score_tile *t)
{
    const float *k = panel_keys(t->panel);
    const uint32_t *q = t->q;
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
            sum[r][n] = vec_set(0.0f);
    for (int64_t d = 0; d < t->pairs; d++, q += ROWS, k += PANEL) {
        vec x[TILE_VECS];
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
            x[n] = vec_load(k + n * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            vec y = vec_set_pair(q + r);
#pragma GCC unroll 16
            for (int n = 0; n < TILE_VECS; n++)
                sum[r][n] = vec_dot(sum[r][n], x[n], y);
        }
    }
}

/* Writes the logits s = c q k + b of a tile, and raises t->top to their maxima. */
static __attribute__((noinline)) void tile_scores(const score_tile *t)
{
    vec sum[ROWS][TILE_VECS], c = vec_set(t->c);
    tile_dots(sum, t);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        vec most = vec_load(t->top + r * LANES);
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++) {
            vec s = vec_fma(sum[r][n], c, vec_load(t->panel + n * LANES));
            most = vec_max(s, most);
            vec_store(t->s + r * t->s_stride + n * LANES, s);
        }
        vec_store(t->top + r * LANES, most);
    }
}

/* Stores the 32 probabilities in a and b as bf16, in the order of their keys. Returns the lane-wise sums `rounded` plus
 * the stored numbers. */
static inline vec store_probabilities(float *p, vec a, vec b, vec rounded)
{
    vec pairs = (vec)_mm512_cvtne2ps_pbh(b, a);
    vec_store(p, pairs);
    /* The dot product with pairs of 1.0 adds up the stored numbers. */
    return vec_dot(rounded, pairs, _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)));
}

/* Writes the probabilities p = 2^(c q k + b - m) of a tile for a fixed m, and adds them to l and, rounded to bf16, to
 * l'. */
static __attribute__((noinline)) void tile_probabilities(const score_tile *t)
{
    vec sum[ROWS][TILE_VECS], c = vec_set(t->c);
    tile_dots(sum, t);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        vec l = vec_set(0.0f), rounded = l, m = vec_set(t->m[r]);
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n += 2) {
            vec a = vec_exp2_short(vec_fma(sum[r][n], c, vec_sub(vec_load(t->panel + n * LANES), m)));
            vec b = vec_exp2_short(vec_fma(sum[r][n + 1], c, vec_sub(vec_load(t->panel + (n + 1) * LANES), m)));
            l = vec_add(vec_add(a, b), l);
            rounded = store_probabilities(t->s + r * t->s_stride + n / 2 * LANES, a, b, rounded);
        }
        vec_store(t->rounded + r * LANES, vec_add(vec_load(t->rounded + r * LANES), rounded));
        vec_store(t->l + r * LANES, vec_add(vec_load(t->l + r * LANES), l));
    }
}

/* Computes the logits of all queries and a block of keys. If at_once is true (m is fixed and there is no mask), writes
 * probabilities instead; the logits then stay in registers. */
static void block_scores(work *w, const float *panel, int64_t panels, bool at_once)
{
    query_rows *t = &w->t;
    score_tile tile = {.s_stride = t->s_stride, .panel = panel, .pairs = w->pairs, .c = w->c};
    for (int64_t n = 0; n < panels && !ith_attn_halted(w->t.call); n++, tile.panel += panel_words(w->D))
        for (int64_t i = 0; i < t->rows; i += ROWS) {
            tile.s = t->s + i * t->s_stride + n * (at_once ? PANEL / 2 : PANEL);
            tile.top = t->top + i * LANES;
            tile.l = t->l + i * LANES;
            tile.rounded = w->rounded + i * LANES;
            tile.m = t->shift + i;
            tile.q = w->q + i * w->pairs;
            fetch_some(&w->ahead);
            if (at_once)
                tile_probabilities(&tile);
            else
                tile_scores(&tile);
        }
}

/* Replaces the logits of row i by probabilities, which take half of the space, and updates the sums l and l'. keys must
 * be a multiple of PANEL. */
static __attribute__((noinline)) void row_probabilities(const work *w, int64_t i, int64_t keys)
{
    float *s = w->t.s + i * w->t.s_stride, *l = w->t.l + i * LANES, *rounded = w->rounded + i * LANES;
    vec shift = vec_set(w->t.shift[i]), scale = vec_set(w->t.scale[i]);
    vec sum = vec_set(0.0f), sum_rounded = sum;
    for (int64_t j = 0; j < keys; j += 2 * LANES) {
        vec a = vec_exp2_short(vec_sub(vec_load(s + j), shift));
        vec b = vec_exp2_short(vec_sub(vec_load(s + j + LANES), shift));
        sum = vec_add(vec_add(a, b), sum);
        sum_rounded = store_probabilities(s + j / 2, a, b, sum_rounded);
    }
    vec_store(l, vec_fma(scale, vec_load(l), sum));
    vec_store(rounded, vec_fma(scale, vec_load(rounded), sum_rounded));
}

/* The arguments of tile_values_1 to tile_values_4, which compute a tile of outputs o: ROWS queries by the columns of a
 * micro-panel of v. */
typedef struct value_tile {
    float *o;
    int64_t padded;               /* floats between rows of o */
    const float *scale, *p;       /* [ROWS]: factors of the old o; [ROWS] rows of probabilities as pairs of bf16 */
    int64_t p_stride;             /* 32-bit words between rows of p */
    const float *v;               /* the micro-panel of v, in the first panel of the block of keys */
    int64_t panel_stride, panels; /* 32-bit words between panels; number of panels in the block */
} value_tile;

/* o = o scale + p v, summed over the keys of the block. The inner loops have two bounds, because clang unrolls by the
 * constant bound before it inlines; with one bound it would keep the sums in memory. */
static inline __attribute__((always_inline)) void tile_values_of(const value_tile *t, const int vecs)
{
    const float *p = t->p, *v = t->v;
    int64_t p_stride = t->p_stride;
    vec sum[ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++)
            sum[r][n] = vec_set(0.0f);
    for (int64_t panel = 0; panel < t->panels; panel++, v += t->panel_stride) {
        const float *x = v;
        for (int64_t j = 0; j < PANEL / 2; j++, x += vecs * LANES, p++) {
            vec value[TILE_VECS];
#pragma GCC unroll 16
            for (int n = 0; n < TILE_VECS && n < vecs; n++)
                value[n] = vec_load(x + n * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                vec y = vec_set_pair(p + r * p_stride);
#pragma GCC unroll 16
                for (int n = 0; n < TILE_VECS && n < vecs; n++)
                    sum[r][n] = vec_dot(sum[r][n], value[n], y);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        vec rescale = vec_set(t->scale[r]);
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++) {
            float *at = t->o + r * t->padded + n * LANES;
            vec_store(at, vec_fma(vec_load(at), rescale, sum[r][n]));
        }
    }
}

/* Defines tile_values_<vecs>, which computes a tile of ROWS queries by `vecs` vectors of outputs. It is not inlined, so
 * that the compiler keeps every sum of the tile in a register. */
#define TILE_FUNCTION(vecs)                                                                                            \
    static __attribute__((noinline)) void tile_values_##vecs(const value_tile *t)                                      \
    {                                                                                                                  \
        tile_values_of(t, vecs);                                                                                       \
    }
TILE_FUNCTION(1)
TILE_FUNCTION(2)
TILE_FUNCTION(3)
TILE_FUNCTION(4)

static void (*const tile_values[TILE_VECS + 1])(const value_tile *t) = {NULL, tile_values_1, tile_values_2,
                                                                        tile_values_3, tile_values_4};

/* o = o scale + p v for all queries. Each micro-panel of v is used by all tiles of queries before the next one is
 * read. */
static void block_values(work *w, const float *panel, int64_t panels)
{
    const query_rows *t = &w->t;
    value_tile tile = {.padded = w->padded, .p_stride = t->s_stride, .panels = panels};
    tile.panel_stride = panel_words(w->D);
    tile.v = panel_values(panel, w->D);
    for (int64_t d = 0; d < w->padded && !ith_attn_halted(w->t.call); d += PANEL, tile.v += PANEL / 2 * PANEL) {
        int64_t vecs = ith_min64(TILE_VECS, (w->padded - d) / LANES);
        for (int64_t i = 0; i < t->rows; i += ROWS) {
            tile.o = t->o + i * t->o_stride + d;
            tile.p = t->s + i * t->s_stride;
            tile.scale = t->scale + i;
            tile_values[vecs](&tile);
        }
    }
}

/* Loads m, l and o of earlier calls. The sum l' of rounded probabilities is not kept between calls, so it starts as
 * l. */
static void load_state(work *w)
{
    rows_load(&w->t);
    memcpy(w->rounded, w->t.l, (size_t)(w->t.rows * LANES) * sizeof *w->rounded);
}

/* Multiplies o by l / l', where l' is the sum of rounded probabilities. Then writes the outputs in the last call,
 * otherwise m, l and o. */
static void store_state(work *w)
{
    for (int64_t i = 0; i < w->t.call->q_rows; i++) {
        float l = vec_hsum(vec_load(w->t.l + i * LANES)), rounded = vec_hsum(vec_load(w->rounded + i * LANES));
        vec ratio = vec_set(rounded > 0.0f ? l / rounded : 1.0f);
        for (float *o = w->t.o + i * w->padded, *end = o + w->padded; o < end; o += LANES)
            vec_store(o, vec_mul(ratio, vec_load(o)));
    }
    rows_store(&w->t);
}

static void attend(const ith_attn_call *call)
{
    ith_arena arena = {.base = call->scratch};
    work w = lay_out(&arena, call->q_rows, call->head_dim, call->tiles.block_kv_compute);
    w.t.call = call;
    w.c = call->scale * (float)M_LOG2E;
    load_queries(&w);
    load_state(&w);
    bool online = call->softmax == ITH_SOFTMAX_ONLINE, masked = call->mask_kind != ITH_MASK_NONE;
    const float *panel = call->packed, *end = panel + ith_div_up(call->keys, PANEL) * panel_words(w.D);
    for (int64_t j = 0; j < call->keys && !ith_attn_halted(call); j += w.block) {
        int64_t keys = ith_min64(w.block, call->keys - j), panels = ith_div_up(keys, PANEL);
        const float *next = panel + panels * panel_words(w.D);
        w.ahead = fetch_of(next, end, (next - panel) * (int64_t)sizeof *next, panels * w.t.rows / ROWS);
        if (online)
            rows_clear_tops(&w.t);
        const unsigned mode = vec_flush_begin(); /* as VDPBF16PS does whatever the mode is */
        block_scores(&w, panel, panels, !online && !masked);
        if (masked)
            rows_mask(&w.t, j, keys, panels * PANEL);
        if (online)
            rows_raise_maxima(&w.t);
        for (int64_t i = 0; i < w.t.rows && (online || masked); i++)
            row_probabilities(&w, i, panels * PANEL);
        block_values(&w, panel, panels);
        vec_flush_end(mode);
        panel = next;
    }
    store_state(&w);
}

void ith_attn_bf16_avx512bf16_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_bf16_avx512bf16_attend(const ith_attn_call *call)
{
    attend(call);
}
