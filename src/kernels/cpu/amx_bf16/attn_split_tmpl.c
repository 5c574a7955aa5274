/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of f32 or f16 tensors with AMX, whose products take bf16: the body of attn_<type>_amx.c. A number
 * is split into PARTS bf16 numbers: x_0 is x rounded to bf16, and x_a is x - x_0 - ... - x_(a-1) rounded to bf16.
 *
 *     x = x_0 + x_1 + ...,   x y = sum of x_a y_b, a + b < PARTS          (arXiv:1904.06376)
 *
 * The smallest products are added first, and the sums are in f32. Three parts hold all 24 bits of f32, and six products
 * give all but 2^-25 of |x y|. Two parts hold all 11 bits of f16. As an exception to a + b < PARTS, logits of f16
 * tensors take all four products, so that they are as exact as in f32. Probabilities are split like tensors.
 *
 * Parts and products must not fall below 2^-126, where the instruction reads zero, nor be rounded to infinity. So a row
 * of q or a panel of k (128 packed keys) is scaled up by a power of two if its largest element is below 2^LEAST_FACTOR.
 * A panel of v is scaled up if its largest element is below 1, because a fixed m may make all probabilities small. The
 * power brings the largest element into [1, 2), but is at most 2^90. A row or panel that reaches 2^127 is halved. The
 * sums are scaled back. Bits are lost only from an element below 2^-110 in a row or panel that needs no scaling.
 *
 *     s_ij = c q_i . k_j + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = sum_j p_ij v_j          m_i: attn_state.h
 *
 * Everything is computed transposed, s^T = k q^T and o^T = v^T p^T, in squares of 2 x 2 tiles (attn_lanes.h,
 * panels_amx.h).
 *
 * Loops. A job is QUERIES queries against a panel of keys, which stays in the second-level cache while all its jobs
 * run. The probabilities of a job are computed between the products for the logits of the next job, and a square of 2 x
 * 2 tiles of p v is added to o while the next square is computed: the tile unit and the vector units work side by side.
 *
 * The including file defines TYPE (ITH_F32 or ITH_F16), PARTS (3 or 2) and EXP2_SHORT (attn_lanes.h). */
#include "../avx512/vec_avx512.h"

#include "attn_split_layout.h"

#include "../attn_lanes.h"
#include "panels_amx.h"
#include "split_amx.h"

enum {
    SLICE = 16,                    /* number of keys whose probabilities are computed at a time */
    PRODUCTS = PARTS == 3 ? 6 : 4, /* number of products of bf16 parts that make one product of elements of k and q */
    /* A row of q or a packed panel of k is scaled up if its largest element is below 2^LEAST_FACTOR. */
    LEAST_FACTOR = -32,
    LEAST_EXPONENT = -90 /* numbers are scaled up by at most 2^-LEAST_EXPONENT */
};

/* ---- Numbers as sums of bf16 ----------------------------------------------------------------------------------- */

/* Multiplies elements [d, d + 32) of a row of D numbers by factor, and splits each into PARTS bf16 numbers. Elements
 * beyond D, and all elements of an absent row (NULL), are zeros. */
static inline void split_row(const char *row, int64_t d, int64_t D, float factor, __m512i part[PARTS])
{
    vec x[2];
    for (int64_t n = 0; n < 2; n++) {
        int64_t at = d + n * LANES;
        x[n] = at < D ? vec_mul(vec_set(factor), load_part(row, TYPE, at, D)) : vec_set(0.0f);
    }
    split(x[0], x[1], part);
}

/* The lane-wise maximum of `top` and the absolute values of the finite elements of a row. */
static inline vec row_top(vec top, const char *row, int64_t D)
{
    for (int64_t d = 0; row != NULL && d < D; d += LANES) {
        vec x = _mm512_abs_ps(load_part(row, TYPE, d, D));
        top = _mm512_mask_max_ps(top, _mm512_cmp_ps_mask(x, vec_set(FLT_MAX), _CMP_LE_OQ), top, x);
    }
    return top;
}

/* Returns the exponent e of the power 2^e by which rows are divided before they are split into bf16 parts. The largest
 * lane of `top` is the largest magnitude in the rows. If it is 2^127 or more, e is 1; if it is at least 2^least, e is
 * 0; otherwise e is its exponent, but at least LEAST_EXPONENT, so that 2^-e times another factor does not overflow. */
static inline float exponent_of(vec top, float least)
{
    float most = _mm512_reduce_max_ps(top);
    float exponent = most > 0.0f ? _mm512_cvtss_f32(_mm512_getexp_ps(vec_set(most))) : 0.0f;
    if (exponent == FLT_MAX_EXP - 1)
        return 1.0f;
    return exponent >= least ? 0.0f : fmaxf(exponent, LEAST_EXPONENT);
}

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

/* Packs the keys of a panel as tiles of 16 keys by 32 elements. Each element is split into PARTS bf16 numbers, which go
 * to different tiles. */
static void pack_keys(char *panel, const ith_attn_pack *p, int64_t first, const char *const *row)
{
    int64_t D = p->head_dim;
    vec top = vec_set(0.0f);
    for (int64_t i = 0; i < PANEL; i++) {
        fetch_row(p, p->v, first + i);
        top = row_top(top, row[i], D);
    }
    head_of(panel, D)->k_exponent = exponent_of(top, LEAST_FACTOR);
    float factor = exp2f(-head_of(panel, D)->k_exponent);
    for (int64_t i = 0; i < PANEL; i++) {
        char *k = panel_keys(panel, D, i / STRIP) + i % STRIP * TILE_ROW_BYTES;
        for (int64_t d = 0; d < D; d += STEP, k += FACTOR_BYTES) {
            __m512i part[PARTS];
            split_row(row[i], d, D, factor, part);
            for (int64_t n = 0; n < PARTS; n++)
                _mm512_store_si512(k + n * PAIR_BYTES, part[n]);
        }
    }
}

/* Packs elements [d, d + STEP) of the values of a strip of 32 keys as tiles of 16 elements by 32 keys: two tiles for
 * each of the PARTS bf16 numbers into which an element is split. */
static void pack_square(char *v, const char *const *row, int64_t d, int64_t D, float factor)
{
    __m512i even[PARTS][LANES], odd[PARTS][LANES];
    for (int64_t i = 0; i < LANES; i++) {
        __m512i a[PARTS], b[PARTS];
        split_row(row[2 * i], d, D, factor, a);
        split_row(row[2 * i + 1], d, D, factor, b);
        for (int64_t n = 0; n < PARTS; n++) {
            even[n][i] = a[n];
            odd[n][i] = b[n];
        }
    }
    for (int64_t n = 0; n < PARTS; n++)
        store_pairs(v + n * PAIR_BYTES, even[n], odd[n]);
}

static void pack_values(char *panel, const ith_attn_pack *p, const char *const *row)
{
    int64_t D = p->head_dim;
    vec top = vec_set(0.0f);
    for (int64_t i = 0; i < PANEL; i++)
        top = row_top(top, row[i], D);
    float unit = head_of(panel, D)->v_unit = exp2f(exponent_of(top, 0.0f));
    for (int64_t n = 0; n < STRIPS; n++)
        for (int64_t d = 0; d < D; d += STEP)
            pack_square(panel_values(panel, D, d / STEP) + n * FACTOR_BYTES, row + n * STRIP, d, D, 1.0f / unit);
}

static void pack(const ith_attn_pack *p)
{
    int64_t bytes = panel_bytes(p->head_dim);
    char *panel = (char *)p->packed + p->first / PANEL * bytes;
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += bytes) {
        const char *k[PANEL], *v[PANEL];
        for (int64_t i = 0; i < PANEL; i++) {
            fetch_row(p, p->k, first + i);
            k[i] = key_row(p, p->k, first + i);
            v[i] = key_row(p, p->v, first + i);
        }
        head_of(panel, p->head_dim)->biased = pack_biases(panel_bias(panel, p->head_dim), p, first, PANEL);
        pack_keys(panel, p, first, k);
        pack_values(panel, p, v);
    }
}

/* ---- Queries --------------------------------------------------------------------------------------------------- */

/* Multiplies queries [i, i + LANES) by factor, and each query by its power of 2. Splits them into bf16 parts, and
 * writes them to q, transposed, as tiles [16 pairs of elements][16 queries]. Logits need a further factor 2^exponent:
 * w->q_exponent keeps its exponent for finish_slice. */
static void load_query_tiles(work *w, int64_t i, char *q, float factor, float exponent)
{
    const ith_attn_call *call = w->t.call;
    const char *row[LANES];
    float row_factor[LANES];
    for (int64_t n = 0; n < LANES; n++) {
        row[n] = i + n < call->q_rows ? call->q[i + n] : NULL;
        float own = exponent_of(row_top(vec_set(0.0f), row[n], call->head_dim), LEAST_FACTOR);
        row_factor[n] = factor * exp2f(-own);
        w->q_exponent[i + n] = own + exponent;
    }
    for (int64_t d = 0; d < call->head_dim; d += STEP, q += FACTOR_BYTES) {
        vec x[PARTS][LANES];
        for (int64_t n = 0; n < LANES; n++) {
            __m512i part[PARTS];
            split_row(row[n], d, call->head_dim, row_factor[n], part);
            for (int64_t k = 0; k < PARTS; k++)
                x[k][n] = _mm512_castsi512_ps(part[k]);
        }
        for (int64_t k = 0; k < PARTS; k++) {
            vec_transpose(x[k]);
            for (int64_t n = 0; n < LANES; n++)
                vec_store((float *)(q + k * PAIR_BYTES + n * TILE_ROW_BYTES), x[k][n]);
        }
    }
}

/* Packs the queries of the call. With three bf16 parts, queries are multiplied by c = scale log2(e) = factor
 * 2^exponent. Two parts cannot hold that product exactly, so the sums q . k are multiplied by c instead. */
static void load_queries(work *w)
{
    int exponent = 0;
    float c = w->t.call->scale * (float)M_LOG2E, factor = 1.0f;
    if (PARTS == 3) {
        factor = frexpf(c, &exponent);
        if (exponent > LEAST_FACTOR && exponent < -LEAST_FACTOR) {
            factor = c;
            exponent = 0;
        }
    }
    w->c = PARTS == 3 ? 1.0f : c;
    for (int64_t i = 0; i < ith_round_up(w->t.call->q_rows, QUERIES); i += LANES) {
        char *q = w->q + i / QUERIES * w->steps * FACTOR_BYTES + i % QUERIES / LANES * TILE_BYTES;
        load_query_tiles(w, i, q, factor, (float)exponent);
    }
}

/* Adds the sums of p v in w->sum to the outputs: o^T = o^T 2^(m - m') + v_unit sum. Does nothing if they have already
 * been added. */
static __attribute__((noinline)) void add_square(work *w)
{
    const bool flushes = w->v_unit >= flush_from;
    if (!flushes)
        vec_flush_end(w->mode);
    float *o = w->sum_target;
    const vec unit = vec_set(w->v_unit);
    for (int64_t d = 0; o != NULL && d < STEP; d++, o += QUERIES)
        for (int64_t n = 0; n < w->width; n += LANES) {
            vec sum = vec_mul(vec_load(w->sum + d * QUERIES + n), unit);
            vec_store(o + n, vec_fma(vec_load(o + n), vec_load(w->t.scale + n), sum));
        }
    if (!flushes)
        vec_flush_begin();
    w->sum_target = NULL;
}

/* ---- Probabilities, in units of SLICE keys and LANES queries --------------------------------------------------- */

/* Whether the sums of products of a job still have to be scaled, multiplied by c, or added to biases to become
 * logits. */
static bool unfinished(const work *w, const job *j)
{
    const panel_head *head = head_of(j->panel, w->t.D);
    bool scaled = head->k_exponent != 0.0f;
    for (int64_t n = 0; n < QUERIES; n++)
        scaled = scaled || w->q_exponent[j->i + n] != 0.0f;
    return scaled || head->biased || w->c != 1.0f || w->t.kind == SHORT_FIXED;
}

/* Turns sums q . k of the pending job (w->pending) into logits, for SLICE keys from k on and LANES queries from n
 * on. */
static void finish_slice(const work *w, float *s, int64_t k, int64_t n)
{
    const job *j = w->pending;
    const panel_head *head = head_of(j->panel, w->t.D);
    const float *b = panel_bias(j->panel, w->t.D) + k;
    vec exponent = vec_add(vec_load(w->q_exponent + j->i + n), vec_set(head->k_exponent));
    vec c = vec_set(w->c), from = vec_load(w->t.from + j->i + n);
    for (int64_t m = 0; m < SLICE; m++) {
        vec x = vec_fma(_mm512_scalef_ps(vec_load(s + m * QUERIES), exponent), c, from);
        vec_store(s + m * QUERIES, head->biased ? vec_add(x, vec_set(b[m])) : x);
    }
}

/* Completes the logits of SLICE keys of the pending job and, with the online softmax and no mask, raises w->t.top to
 * their maxima. With a mask, raise_maxima finds the maxima. */
static void prepare_slice(work *w, int64_t k, int64_t n)
{
    float *s = w->pending->s + k * QUERIES + n;
    if (w->unfinished)
        finish_slice(w, s, k, n);
    if (w->t.call->softmax == ITH_SOFTMAX_FIXED_M || w->t.call->mask_kind != ITH_MASK_NONE)
        return;
    vec top = vec_load(w->t.top + n);
    for (int64_t m = 0; m < SLICE; m++)
        top = vec_max(vec_load(s + m * QUERIES), top);
    vec_store(w->t.top + n, top);
}

/* Applies the mask to the logits of the pending job (w->pending), and raises the maxima m of its queries. Called when
 * all its logits are prepared, before its probabilities are computed. */
static void raise_maxima(work *w)
{
    const job *j = w->pending;
    add_square(w); /* adds w->sum to o before w->t.scale changes */
    if (w->t.call->mask_kind != ITH_MASK_NONE) {
        lanes_mask(&w->t, j->s, QUERIES, j->key, j->keys, j->i);
        lanes_find_top(&w->t, j->s, QUERIES, j->strips * STRIP, j->i);
    }
    lanes_fill(w->t.scale, 1.0f);
    lanes_fill(w->l, 0.0f);
    lanes_raise_maxima(&w->t, j->i);
}

/* Splits the probabilities a and b of two keys into bf16 parts, and stores part n of a and part n of b side by side. A
 * part is the upper 16 bits of the probability minus its earlier parts; the second of two parts is rounded. */
static inline void store_probabilities(char *p, vec a, vec b)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u), half_unit = _mm512_set1_epi32(0x8000);
#pragma GCC unroll 3
    for (int n = 0; n < PARTS; n++, p += PAIR_BYTES) {
        __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
        if (n == PARTS - 1 && PARTS == 2) {
            x = _mm512_add_epi32(x, half_unit);
            y = _mm512_add_epi32(y, half_unit);
        }
        y = _mm512_and_si512(y, upper);
        _mm512_store_si512(p, _mm512_or_si512(_mm512_srli_epi32(x, 16), y));
        a = vec_sub(a, _mm512_castsi512_ps(_mm512_and_si512(x, upper)));
        b = vec_sub(b, _mm512_castsi512_ps(y));
    }
}

/* Computes the probabilities of SLICE keys from k on and LANES queries from n on, and adds them to w->l. */
static inline __attribute__((always_inline)) void slice_probabilities_as(work *w, int64_t k, int64_t n,
                                                                         const exp_kind kind)
{
    const job *j = w->pending;
    const float *s = j->s + k * QUERIES + n;
    char *p = w->p + k / STRIP * FACTOR_BYTES + n / LANES * TILE_BYTES + k % STRIP / 2 * TILE_ROW_BYTES;
    vec m = vec_load(w->t.shift + j->i + n), even = vec_set(0.0f), odd = even;
#pragma GCC unroll 4
    for (int64_t i = 0; i < SLICE / 2; i++) {
        vec a = probability_of(vec_load(s + 2 * i * QUERIES), m, kind);
        vec b = probability_of(vec_load(s + (2 * i + 1) * QUERIES), m, kind);
        even = vec_add(even, a);
        odd = vec_add(odd, b);
        store_probabilities(p + i * TILE_ROW_BYTES, a, b);
    }
    vec_store(w->l + n, vec_add(vec_load(w->l + n), vec_add(even, odd)));
}

/* Passes the exp_kind to slice_probabilities_as as a constant, so that the compiler makes one version of that function
 * for each kind. */
static void slice_probabilities(work *w, int64_t k, int64_t n)
{
    switch (w->t.kind) {
    case F32_ONLINE: slice_probabilities_as(w, k, n, F32_ONLINE); break;
    case F32_FIXED: slice_probabilities_as(w, k, n, F32_FIXED); break;
    case SHORT_ONLINE: slice_probabilities_as(w, k, n, SHORT_ONLINE); break;
    case SHORT_FIXED: slice_probabilities_as(w, k, n, SHORT_FIXED); break;
    }
}

/* Does the next unit of work on the pending job. The first units prepare the logits of SLICE keys each, the next unit
 * raises the maxima, and the last units compute the probabilities of SLICE keys each. */
static __attribute__((noinline)) void next_unit(work *w)
{
    int64_t prepared = w->units / 2, unit = w->unit++;
    if (unit == prepared) {
        raise_maxima(w);
        w->k = w->n = 0;
        return;
    }
    if (unit < prepared)
        prepare_slice(w, w->k, w->n);
    else
        slice_probabilities(w, w->k, w->n);
    w->n += LANES;
    if (w->n == lanes_width(&w->t, w->pending->i)) {
        w->k += SLICE;
        w->n = 0;
    }
}

/* Makes j the pending job, whose probabilities are computed during the next `products` calls of multiply. NULL: no job
 * is pending. */
static void begin_pending(work *w, const job *j, int64_t products)
{
    w->pending = j;
    w->unit = w->credit = w->k = w->n = w->units = 0;
    w->products = products;
    lanes_fill(w->t.top, -INFINITY);
    if (j == NULL)
        return;
    w->units = 2 * (j->strips * STRIP / SLICE) * (lanes_width(&w->t, j->i) / LANES) + 1;
    w->unfinished = unfinished(w, j);
}

/* Continues the computation of the pending job's probabilities (w->pending). The work is spread evenly over the calls
 * of multiply. */
static inline void compute_pending(work *w)
{
    for (w->credit += w->units; w->credit >= w->products && w->unit < w->units; w->credit -= w->products)
        next_unit(w);
}

/* ---- Squares: 2 x 2 tiles of sums in registers 0 to 3 ---------------------------------------------------------- */

/* Loads two tiles of k or v past the first-level cache, which keeps q, s, p and o. */
static inline void load_left(const char *a)
{
    _tile_stream_loadd(4, a, TILE_ROW_BYTES);
    _tile_stream_loadd(5, a + TILE_BYTES, TILE_ROW_BYTES);
}

static inline void load_right(const char *b)
{
    _tile_loadd(6, b, TILE_ROW_BYTES);
    _tile_loadd(7, b + TILE_BYTES, TILE_ROW_BYTES);
}

/* Adds the products of tile registers 4 and 5 by 6 and 7 to the sums in registers 0 to 3. Then does the work on the
 * pending job that is due. */
static inline void multiply(work *w)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    compute_pending(w);
    tiles_see_memory();
}

/* Multiplies the bf16 parts of a by the parts of b, and adds the products to tile registers 0 to 3, smallest products
 * first. With three parts, and with two unless `all` is true, the products that are too small to count are left out.
 * Each product shares a factor with the previous product; this factor stays in its registers. */
static inline void multiply_parts(work *w, const char *a, const char *b, const bool all)
{
    load_left(a + (PARTS - 1) * PAIR_BYTES);
    load_right(b);
    multiply(w);
    if (PARTS == 3) {
        load_left(a + PAIR_BYTES);
        multiply(w);
    }
    load_right(b + PAIR_BYTES);
    if (PARTS == 3 || all)
        multiply(w);
    load_left(a);
    multiply(w);
    if (PARTS == 3) {
        load_right(b + 2 * PAIR_BYTES);
        multiply(w);
    }
    load_right(b);
    multiply(w);
}

static inline void clear_square(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* Writes the sums in tile registers 0 to 3, which are 2 x 2 tiles, to out [32][QUERIES]. */
static inline void store_square(float *out)
{
    enum { STRIDE = QUERIES * sizeof(float) };
    _tile_stored(0, out, STRIDE);
    _tile_stored(1, out + TILE_ROWS * QUERIES, STRIDE);
    _tile_stored(2, out + LANES, STRIDE);
    _tile_stored(3, out + TILE_ROWS * QUERIES + LANES, STRIDE);
    tiles_see_memory();
}

/* Computes the sums k q^T of job j and, between the products, the probabilities of the pending job. */
static void scores(work *w, const job *j)
{
    for (int64_t strip = 0; strip < j->strips; strip++) {
        const char *k = panel_keys(j->panel, w->t.D, strip), *q = w->q + j->i / QUERIES * w->steps * FACTOR_BYTES;
        clear_square();
        for (int64_t n = 0; n < w->steps; n++, k += FACTOR_BYTES, q += FACTOR_BYTES) {
            multiply_parts(w, k, q, true);
            fetch_some(&w->ahead);
            add_square(w);
        }
        store_square(j->s + strip * STRIP * QUERIES);
    }
}

/* Adds the probabilities p of job j and their products with v to the state of its queries: l = l 2^(m - m') + sum of p,
 * o^T = o^T 2^(m - m') + v^T p^T. */
static void values(work *w, const job *j)
{
    for (int64_t n = 0; n < lanes_width(&w->t, j->i); n++)
        w->t.l[j->i + n] += w->l[n];
    add_square(w);
    w->width = lanes_width(&w->t, j->i);
    w->v_unit = head_of(j->panel, w->t.D)->v_unit;
    for (int64_t step = 0; step < w->steps; step++) {
        const char *v = panel_values(j->panel, w->t.D, step), *p = w->p;
        clear_square();
        for (int64_t strip = 0; strip < j->strips; strip++, v += FACTOR_BYTES, p += FACTOR_BYTES) {
            multiply_parts(w, v, p, false);
            fetch_some(&w->ahead);
            add_square(w);
        }
        store_square(w->sum);
        w->sum_target = lanes_o(&w->t, j->i) + step * STEP * QUERIES;
    }
}

/* ---- The call -------------------------------------------------------------------------------------------------- */

/* Returns job number n of the call. A job attends with QUERIES queries to one panel of keys. The jobs of a panel of
 * keys follow each other. */
static job job_at(const work *w, int64_t n)
{
    const ith_attn_call *call = w->t.call;
    int64_t q_panels = ith_div_up(call->q_rows, QUERIES), panel = n / q_panels;
    job j = {.panel = (const char *)call->packed + panel * panel_bytes(call->head_dim), .s = w->s[n % 2]};
    j.key = panel * PANEL;
    j.keys = ith_min64(PANEL, call->keys - j.key);
    j.strips = ith_div_up(j.keys, STRIP);
    j.i = n % q_panels * QUERIES;
    return j;
}

/* Plans the prefetch of the packed panel of keys that follows the panel of job j. */
static fetch next_panel(const work *w, const job *j)
{
    int64_t bytes = panel_bytes(w->t.D), tiles = 2 * ith_div_up(w->t.call->q_rows, QUERIES) * j->strips * w->steps;
    return fetch_panels(w->t.call, j->panel, bytes, tiles);
}

/* Runs all jobs of the call. The logits of job n are computed together with the probabilities of job n - 1; then p v of
 * job n - 1 is added to o. */
static void run_jobs(work *w)
{
    int64_t jobs = ith_div_up(w->t.call->keys, PANEL) * ith_div_up(w->t.call->q_rows, QUERIES);
    job job_of[2];
    for (int64_t n = 0; n <= jobs && !ith_attn_halted(w->t.call); n++) {
        job *now = &job_of[n % 2], *before = n > 0 ? &job_of[(n - 1) % 2] : NULL;
        if (n < jobs) {
            *now = job_at(w, n);
            if (now->i == 0)
                w->ahead = next_panel(w, now);
            begin_pending(w, before, now->strips * w->steps * PRODUCTS);
            scores(w, now);
        } else {
            begin_pending(w, before, 1);
        }
        if (before == NULL)
            continue;
        while (w->unit < w->units)
            next_unit(w);
        values(w, before);
    }
    add_square(w);
}

static void attend(const ith_attn_call *call)
{
    ith_arena arena = {.base = call->scratch};
    work w = lay_out(&arena, call->q_rows, call->head_dim);
    w.t.call = call;
    load_queries(&w);
    lanes_load(&w.t);
    tiles_claim();
    tiles_see_memory();
    w.mode = vec_flush_begin(); /* parts of a small probability are smaller still */
    run_jobs(&w);
    vec_flush_end(w.mode);
    _tile_release();
    lanes_store(&w.t);
}
