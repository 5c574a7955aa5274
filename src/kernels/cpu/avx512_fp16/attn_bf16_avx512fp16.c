/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of bf16 tensors with AVX512-FP16: logits in f32, p v in f16 over short sums of keys. The
 * multiply-add of f16 takes twice as many numbers as in f32.
 *
 *     s_ij = c q_i . k_j + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     t_i = max_j s_ij over a block of keys,   p_ij = 2^(s_ij - t_i),   l_i += 2^(t_i - m_i) sum_j p_ij
 *     o_i += 2^(t_i - m_i) sum over the short sums of (sum_j p_ij v_j over SHORT_SUM keys, in f16)
 *
 * Accuracy. f16 has three bits more than bf16, but few exponents. Therefore
 *   - p is measured from the maximum of the block and multiplied by 2^P_BITS: below 2^-25 of that maximum it has fewer
 *     bits than in bf16, below 2^-33 it is lost;
 *   - the values of a panel are multiplied by a power of two that brings the largest just below 2^VALUE_BITS. A key
 *     whose values are 2^RATIO_BITS times smaller still has more bits than in bf16. A panel with even smaller keys
 *     keeps its values in bf16. A block with a panel in bf16, or with panels that differ as much, is multiplied in f32;
 *   - sums of SHORT_SUM products stay below 2^15 and are added up in f32. Their roundings to 11 bits leave an error of
 *     about 2^-11 of the sum, whether its terms have one sign or both; rounding p and o to bf16 costs 2^-8.7. (Sums of
 *     64 products are too long: where neighbouring values are alike, they make large sums that cancel later.)
 *
 * Packed: panels of PANEL keys, in words of 32 bits, each panel_head | b [PANEL] | k transposed [D][PANEL], f32 | v,
 * f16 or bf16, in micro-panels of at most VALUE_VECS vectors [PANEL][width]. The last panel is padded with absent keys
 * (b = -inf, k = v = 0); D is padded to whole vectors of f16 in v.
 *
 * Loops: for each block of block_kv_compute keys,
 *     scores          for each panel of keys, for each tile of ROWS queries: a tile of s, summed over D in registers
 *     mask            applies the mask, if there is one
 *     probabilities   for each row: finds t, raises the maximum (online), replaces s by p, adds p to l, and multiplies
 *                     o by 2^(m - m')
 *     values          for each micro-panel of v, for each tile of queries: a tile of o, SHORT_SUM keys at a time in
 *                     registers
 *
 * Padding rows are zeros and are computed like the others, so that the arithmetic of a row is the same wherever it
 * stands. */
#include "attn_bf16_avx512fp16.h"

#include "../avx512/exp2_short_avx512.h"

#include "../attn_fetch.h"
#include "../attn_rows.h"

enum {
    /* The packing of a query prefetches the query that comes QUERY_AHEAD rows later. */
    QUERY_AHEAD = 8,
    SHORT_SUM = 16, /* number of products p v that are summed in f16 before their sum is added in f32 */
    P_BITS = 8,     /* probabilities are multiplied by 2^P_BITS before they are rounded to f16 */
    VALUE_BITS = 3, /* the values of a panel are scaled to less than 2^VALUE_BITS before they are rounded to f16 */
    /* A panel keeps its values in bf16 if the largest values of two of its keys differ by a factor above about
     * 2^RATIO_BITS. */
    RATIO_BITS = 10
};

/* ---- Packing keys and values ----------------------------------------------------------------------------------- */

/* Packs PANEL keys from `first` on, transposed, into k [D][PANEL]. */
static void pack_keys(float *k, const ith_attn_pack *p, int64_t first)
{
    for (int64_t i = 0; i < PANEL; i += LANES) {
        const char *row[LANES];
        for (int64_t r = 0; r < LANES; r++) {
            row[r] = key_row(p, p->k, first + i + r);
            fetch_row(p, p->k, first + i + r + LANES);
            fetch_row(p, p->v, first + i + r);
        }
        for (int64_t d = 0; d < p->head_dim; d += LANES) {
            vec x[LANES];
            for (int64_t r = 0; r < LANES; r++)
                x[r] = load_part(row[r], p->dtype, d, p->head_dim);
            vec_transpose(x);
            for (int64_t c = 0; c < ith_min64(LANES, p->head_dim - d); c++)
                vec_store(k + (d + c) * PANEL + i, x[c]);
        }
    }
}

/* The biased exponent of the largest element of a row of bf16 numbers: 0 if all elements are 0, 255 if one is NaN or
 * infinite. */
static int32_t row_exponent(const uint16_t *row, int64_t D)
{
    __m512i most = _mm512_setzero_si512(), magnitude = _mm512_set1_epi16(0x7fff);
    for (int64_t d = 0; d < D; d += WIDE) {
        __mmask32 there = D - d >= WIDE ? 0xffffffffu : (1u << (D - d)) - 1u;
        most = _mm512_max_epu16(most, _mm512_and_si512(_mm512_maskz_loadu_epi16(there, row + d), magnitude));
    }
    most = _mm512_max_epu16(most, _mm512_srli_epi32(most, 16));
    uint32_t bits = _mm512_reduce_max_epu32(_mm512_and_si512(most, _mm512_set1_epi32(0xffff)));
    /* Subnormal numbers count as the smallest normal numbers. */
    return bits == 0 ? 0 : (int32_t)(bits >> 7) + (bits < 0x80);
}

/* Chooses whether the values of a panel are kept as scaled f16 or as bf16. Returns the factor by which they are
 * multiplied. */
static float choose_values(panel_head *head, const char *const row[PANEL], int64_t D)
{
    head->least = INT32_MAX;
    for (int64_t i = 0; i < PANEL; i++) {
        int32_t exponent = row[i] != NULL ? row_exponent((const uint16_t *)(const void *)row[i], D) : 0;
        head->most = exponent > head->most ? exponent : head->most;
        head->least = exponent != 0 && exponent < head->least ? exponent : head->least;
    }
    head->in_bf16 = head->most == 255 || (head->most != 0 && head->most - head->least > RATIO_BITS);
    /* All values are below 2^(most - 126). */
    int down = head->in_bf16 || head->most == 0 ? 0 : head->most - 126 - VALUE_BITS;
    down = down < -126 ? -126 : down;
    head->back = ldexpf(1.0f, down);
    return ldexpf(1.0f, -down);
}

/* Packs the values of a panel, as scaled f16 or as bf16, and records in the panel_head how they are scaled. */
static void pack_values(float *panel, panel_head *head, const ith_attn_pack *p, int64_t first)
{
    int64_t D = p->head_dim, padded = padded_dim(D);
    uint16_t *v = panel_values(panel, D);
    const char *row[PANEL];
    for (int64_t i = 0; i < PANEL; i++)
        row[i] = key_row(p, p->v, first + i);
    vec factor = vec_set(choose_values(head, row, D));
    for (int64_t i = 0; i < PANEL; i++)
        for (int64_t d = 0; d < padded; d += LANES) {
            /* The first column and the width of the micro-panel (columns of v that are packed together) with element
             * d. */
            int64_t begin = d / COLUMNS * COLUMNS, width = ith_min64(COLUMNS, padded - begin);
            vec x = load_part(d < D ? row[i] : NULL, ITH_BF16, d, D);
            __m256i same = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16));
            __m256i half = _mm512_cvtps_ph(vec_mul(x, factor), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
            _mm256_storeu_si256((__m256i *)(v + begin * PANEL + i * width + (d - begin)), head->in_bf16 ? same : half);
        }
}

static void pack(const ith_attn_pack *p)
{
    float *panel = (float *)p->packed + p->first / PANEL * panel_words(p->head_dim);
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += panel_words(p->head_dim)) {
        panel_head head = {0};
        head.biased = pack_biases(panel_bias(panel), p, first, PANEL);
        pack_keys(panel_keys(panel), p, first);
        pack_values(panel, &head, p, first);
        memcpy(panel, &head, sizeof head);
    }
}

static panel_head head_of(const float *panel)
{
    panel_head head;
    memcpy(&head, panel, sizeof head);
    return head;
}

/* ---- Queries --------------------------------------------------------------------------------------------------- */

/* Writes the queries times c = scale log2(e) to w->q, transposed within each tile of ROWS. Padding queries are
 * zeros. */
static void load_queries(work *w)
{
    const ith_attn_call *call = w->t.call;
    vec c = vec_set(call->scale * (float)M_LOG2E);
    for (int64_t i = 0; i < w->t.rows; i++) {
        const char *row = i < call->q_rows ? call->q[i] : NULL;
        float *q = w->q + i / ROWS * ROWS * w->D + i % ROWS;
        for (int64_t d = 0; i + QUERY_AHEAD < call->q_rows && d < 2 * w->D; d += 64)
            __builtin_prefetch((const char *)call->q[i + QUERY_AHEAD] + d);
        for (int64_t d = 0; d < w->D; d += LANES) {
            float x[LANES];
            vec_store(x, vec_mul(c, load_part(row, ITH_BF16, d, w->D)));
            for (int64_t e = 0; e < ith_min64(LANES, w->D - d); e++)
                q[(d + e) * ROWS] = x[e];
        }
    }
}

/* ---- Logits and probabilities ---------------------------------------------------------------------------------- */

/* Computes the logits s = q k + b of a tile of ROWS queries and PANEL keys, and raises top [ROWS][LANES] to their
 * lane-wise maxima. Rows of s are s_stride floats apart. b is NULL if there are no biases. */
static __attribute__((noinline)) void tile_scores(float *s, int64_t s_stride, float *top, const float *q,
                                                  const float *k, const float *b, int64_t D)
{
    vec sum[ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
            sum[r][n] = vec_set(0.0f);
    for (int64_t d = 0; d < D; d++, q += ROWS, k += PANEL) {
        vec x[TILE_VECS];
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
            x[n] = vec_load(k + n * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            vec y = vec_set(q[r]);
#pragma GCC unroll 16
            for (int n = 0; n < TILE_VECS; n++)
                sum[r][n] = vec_fma(x[n], y, sum[r][n]);
        }
    }
    if (b != NULL) {
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++)
                sum[r][n] = vec_add(sum[r][n], vec_load(b + n * LANES));
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        vec most = vec_load(top + r * LANES);
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++) {
            most = vec_max(sum[r][n], most);
            vec_store(s + r * s_stride + n * LANES, sum[r][n]);
        }
        vec_store(top + r * LANES, most);
    }
}

/* Computes the logits of all queries of the call against a block of keys, and the lane-wise maxima of the logits. */
static void block_scores(work *w, float *panel, int64_t panels)
{
    query_rows *t = &w->t;
    rows_clear_tops(t);
    for (int64_t n = 0; n < panels; n++, panel += panel_words(w->D)) {
        const float *k = panel_keys(panel), *b = head_of(panel).biased ? panel_bias(panel) : NULL;
        for (int64_t i = 0; i < t->rows; i += ROWS) {
            fetch_some(&w->ahead);
            tile_scores(t->s + i * t->s_stride + n * PANEL, t->s_stride, t->top + i * LANES, w->q + i * w->D, k, b,
                        w->D);
        }
    }
}

/* Finds the largest logit of each query in the current block of keys and, with the online softmax, over all keys so
 * far. Sets the factors of the sums over the block (w->share) and of older sums (t->scale). */
static void block_maxima(work *w)
{
    query_rows *t = &w->t;
    if (w->t.call->softmax == ITH_SOFTMAX_ONLINE)
        rows_raise_maxima(t);
    for (int64_t i = 0; i < t->rows; i += LANES) {
        float top[LANES], rise[LANES] = {0};
        vec_store(top, rows_tops(t, i));
        for (int64_t n = 0; n < LANES && i + n < t->rows; n++) {
            w->top[i + n] = shift_of(top[n]);
            rise[n] = top[n] - t->shift[i + n];
        }
        vec_store(w->share + i, vec_mul(vec_exp2(vec_load(rise)), vec_set(1.0f / (1 << P_BITS))));
    }
}

/* Converts LANES numbers to f16, and returns each twice, side by side. */
static inline vec in_pairs(vec x)
{
    const __m512i twice = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5,
                                           4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(twice, _mm512_castsi256_si512(half)));
}

/* Replaces each logit of row i by its probability times 2^P_BITS: one f32 if in_f32 is true, otherwise one f16 number
 * that is written twice. Adds the probabilities to l. */
static inline __attribute__((always_inline)) void row_probabilities(const work *w, int64_t i, int64_t keys, bool in_f32)
{
    float *s = w->t.s + i * w->t.s_stride, *l = w->t.l + i * LANES;
    vec top = vec_set(w->top[i]), sum = vec_set(0.0f);
    for (int64_t j = 0; j < keys; j += LANES) {
        vec p = vec_exp2_short_times(vec_sub(vec_load(s + j), top), 1 << P_BITS);
        sum = vec_add(sum, p);
        vec_store(s + j, in_f32 ? p : in_pairs(p));
    }
    vec_store(l, vec_fma(vec_load(l), vec_set(w->t.scale[i]), vec_mul(sum, vec_set(w->share[i]))));
}

static __attribute__((noinline)) void row_probabilities_f32(const work *w, int64_t i, int64_t keys)
{
    row_probabilities(w, i, keys, true);
}

static __attribute__((noinline)) void row_probabilities_fp16(const work *w, int64_t i, int64_t keys)
{
    row_probabilities(w, i, keys, false);
}

/* Computes the probabilities of all queries and the current block of keys, and multiplies o by 2^(m - m') where the
 * maximum has risen from m to m'. */
static void block_probabilities(work *w, int64_t keys, bool in_f32)
{
    const query_rows *t = &w->t;
    for (int64_t i = 0; i < t->rows; i++) {
        if (in_f32)
            row_probabilities_f32(w, i, keys);
        else
            row_probabilities_fp16(w, i, keys);
        if (t->scale[i] == 1.0f)
            continue;
        vec scale = vec_set(t->scale[i]);
        for (float *o = t->o + i * t->o_stride, *end = o + t->o_stride; o < end; o += LANES)
            vec_store(o, vec_mul(vec_load(o), scale));
    }
}

/* ---- Values ---------------------------------------------------------------------------------------------------- */

/* The arguments of tile_values_1 to tile_values_4, which compute a tile of outputs o: some queries by the columns of a
 * micro-panel of v. */
typedef struct value_tile {
    float *o;
    int64_t o_stride;
    /* share: [rows], factors of the sums of p v. p: [rows][p_stride], probabilities, each as two equal numbers of
     * f16. */
    const float *share, *p;
    int64_t p_stride;
    float *panel;
    /* The offset in bytes of the micro-panel of v within each panel, 32-bit words between panels, number of panels. */
    int64_t at, panel_stride, panels;
} value_tile;

/* o += factor * sum for WIDE numbers, in f32. */
static inline void add_sum(float *o, __m512h sum, vec factor)
{
    __m512i bits = _mm512_castph_si512(sum);
    vec low = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
    vec high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
    vec_store(o, vec_fma(low, factor, vec_load(o)));
    vec_store(o + LANES, vec_fma(high, factor, vec_load(o + LANES)));
}

/* Sums the products p v of SHORT_SUM keys in f16. Then adds the sums, times t->share and times `back`, which undoes
 * the scaling of v, to the tile of o in f32. */
static inline __attribute__((always_inline)) void add_short_sum(const value_tile *t, const float *p, const char *v,
                                                                float back, const int rows, const int vecs)
{
    float *o = t->o;
    int64_t p_stride = t->p_stride;
    __m512h sum[2 * ROWS][VALUE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int n = 0; n < vecs; n++)
            sum[r][n] = _mm512_setzero_ph();
#pragma GCC unroll 4
    for (int64_t j = 0; j < SHORT_SUM; j++, v += vecs * 64) {
        __m512h value[VALUE_VECS];
#pragma GCC unroll 16
        for (int n = 0; n < vecs; n++)
            value[n] = _mm512_loadu_ph(v + n * 64);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            __m512h y = _mm512_castps_ph(vec_set(p[r * p_stride + j]));
#pragma GCC unroll 16
            for (int n = 0; n < vecs; n++)
                sum[r][n] = _mm512_fmadd_ph(value[n], y, sum[r][n]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++, o += t->o_stride) {
        vec factor = vec_set(t->share[r] * back);
#pragma GCC unroll 16
        for (int n = 0; n < vecs; n++)
            add_sum(o + n * WIDE, sum[r][n], factor);
    }
}

static inline __attribute__((always_inline)) void tile_values_of(const value_tile *t, const int rows, const int vecs)
{
    const float *p = t->p, *panel = t->panel;
    for (int64_t n = 0; n < t->panels; n++, panel += t->panel_stride) {
        const char *v = (const char *)panel + t->at;
        float back = head_of(panel).back;
        for (int64_t j = 0; j < PANEL; j += SHORT_SUM, p += SHORT_SUM, v += SHORT_SUM * vecs * 64)
            add_short_sum(t, p, v, back, rows, vecs);
    }
}

/* Defines tile_values_<vecs>, which computes a tile of `rows` queries by `vecs` vectors of outputs. It is not inlined,
 * so that the compiler keeps every sum of the tile in a register. */
#define TILE_FUNCTION(rows, vecs)                                                                                      \
    static __attribute__((noinline)) void tile_values_##vecs(const value_tile *t)                                      \
    {                                                                                                                  \
        tile_values_of(t, rows, vecs);                                                                                 \
    }
TILE_FUNCTION(2 * ROWS, 1)
TILE_FUNCTION(2 * ROWS, 2)
TILE_FUNCTION(ROWS, 3)
TILE_FUNCTION(ROWS, 4)

static void (*const tile_values[VALUE_VECS + 1])(const value_tile *t) = {NULL, tile_values_1, tile_values_2,
                                                                         tile_values_3, tile_values_4};

/* o += share p v for all queries and a block of keys, some columns of v (a micro-panel) at a time. */
static void block_values(work *w, float *panel, int64_t panels)
{
    const query_rows *t = &w->t;
    value_tile tile = {.o_stride = t->o_stride, .p_stride = t->s_stride, .panel = panel, .panels = panels};
    tile.panel_stride = panel_words(w->D);
    tile.at = (char *)panel_values(panel, w->D) - (char *)panel;
    for (int64_t d = 0; d < w->padded; d += COLUMNS, tile.at += COLUMNS * PANEL * 2) {
        int64_t vecs = ith_min64(VALUE_VECS, (w->padded - d) / WIDE);
        const int64_t tile_rows = vecs > 2 ? ROWS : 2 * ROWS; /* narrow tiles have twice as many rows */
        for (int64_t i = 0; i < t->rows; i += tile_rows) {
            tile.o = t->o + i * t->o_stride + d;
            tile.p = t->s + i * t->s_stride;
            tile.share = w->share + i;
            tile_values[vecs](&tile);
        }
    }
}

/* ---- Values in f32 --------------------------------------------------------------------------------------------- */

/* Whether a block of keys has a panel with values in bf16, or panels whose values differ too much in size for f16. */
static bool needs_f32(const work *w, const float *panel, int64_t panels)
{
    int32_t most = 0, least = INT32_MAX;
    bool in_bf16 = false;
    for (int64_t n = 0; n < panels; n++, panel += panel_words(w->D)) {
        panel_head head = head_of(panel);
        in_bf16 = in_bf16 || head.in_bf16;
        most = head.most > most ? head.most : most;
        least = head.least < least ? head.least : least;
    }
    return in_bf16 || (most != 0 && most - least > RATIO_BITS);
}

/* Converts columns [d, d + WIDE) of a panel's values to f32 and writes them to w->v. */
static void unpack_values(const work *w, float *panel, int64_t d)
{
    panel_head head = head_of(panel);
    int64_t begin = d / COLUMNS * COLUMNS, width = ith_min64(COLUMNS, w->padded - begin);
    const uint16_t *v = panel_values(panel, w->D) + begin * PANEL + (d - begin);
    vec back = vec_set(head.back);
    for (int64_t i = 0; i < PANEL; i++, v += width)
        for (int64_t e = 0; e < WIDE; e += LANES)
            vec_store(w->v + i * WIDE + e, head.in_bf16 ? vec_load_bf16(v + e) : vec_mul(back, vec_load_f16(v + e)));
}

/* Sums p v over the keys of one panel in f32, and adds the sums of row r, times share[r], to o [ROWS][WIDE]. */
static __attribute__((noinline)) void tile_values_f32(float *o, int64_t o_stride, const float *share, const float *p,
                                                      int64_t p_stride, const float *v)
{
    vec sum[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        sum[r][0] = sum[r][1] = vec_set(0.0f);
    for (int64_t j = 0; j < PANEL; j++, v += WIDE) {
        vec low = vec_load(v), high = vec_load(v + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            vec y = vec_set(p[r * p_stride + j]);
            sum[r][0] = vec_fma(low, y, sum[r][0]);
            sum[r][1] = vec_fma(high, y, sum[r][1]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++, o += o_stride) {
        vec factor = vec_set(share[r]);
        vec_store(o, vec_fma(sum[r][0], factor, vec_load(o)));
        vec_store(o + LANES, vec_fma(sum[r][1], factor, vec_load(o + LANES)));
    }
}

/* Computes o += share p v in f32 for all queries and one block of keys whose values f16 cannot hold. */
static void block_values_f32(work *w, float *panel, int64_t panels)
{
    const query_rows *t = &w->t;
    for (int64_t n = 0; n < panels; n++, panel += panel_words(w->D))
        for (int64_t d = 0; d < w->padded; d += WIDE) {
            unpack_values(w, panel, d);
            for (int64_t i = 0; i < t->rows; i += ROWS)
                tile_values_f32(t->o + i * t->o_stride + d, t->o_stride, w->share + i,
                                t->s + i * t->s_stride + n * PANEL, t->s_stride, w->v);
        }
}

static void attend(const ith_attn_call *call)
{
    ith_arena arena = {.base = call->scratch};
    work w = lay_out(&arena, call->q_rows, call->head_dim, call->tiles.block_kv_compute);
    w.t.call = call;
    load_queries(&w);
    rows_load(&w.t);
    float *panel = (float *)call->packed, *end = panel + ith_div_up(call->keys, PANEL) * panel_words(w.D);
    for (int64_t j = 0; j < call->keys && !ith_attn_halted(call); j += w.block) {
        int64_t keys = ith_min64(w.block, call->keys - j), panels = ith_div_up(keys, PANEL);
        bool in_f32 = needs_f32(&w, panel, panels);
        float *next = panel + panels * panel_words(w.D);
        w.ahead = fetch_of(next, end, (next - panel) * (int64_t)sizeof *next, panels * w.t.rows / ROWS);
        block_scores(&w, panel, panels);
        if (call->mask_kind != ITH_MASK_NONE)
            rows_mask(&w.t, j, keys, panels * PANEL);
        block_maxima(&w);
        block_probabilities(&w, panels * PANEL, in_f32);
        if (in_f32)
            block_values_f32(&w, panel, panels);
        else
            block_values(&w, panel, panels);
        panel = next;
    }
    rows_store(&w.t);
}

void ith_attn_bf16_avx512fp16_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_bf16_avx512fp16_attend(const ith_attn_call *call)
{
    attend(call);
}
