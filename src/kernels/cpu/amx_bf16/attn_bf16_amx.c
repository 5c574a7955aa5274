/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of bf16 tensors with AMX (TDPBF16PS: products of 16 x 32 by 32 x 16 bf16 onto 16 x 16 f32).
 *
 *     s_ij = c (q_i . k_j) + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = l_i / l'_i sum_j p'_ij v_j
 *
 * where p' is p rounded to bf16 and l' the sum of p'. So o / l is a mean whose weights p' / l' add up to 1, and a lone
 * key returns its value unchanged. Therefore m need not be the maximum. With the online softmax, m is an integer, and
 * is raised only when a logit exceeds it by more than RISE: that is rare, and scaling by 2^(m - m') is exact, even for
 * probabilities that are already rounded.
 *
 * Everything is computed transposed: s^T = k q^T, o^T = v^T p^T (attn_lanes.h, panels_amx.h). A vector then holds the
 * probabilities of one key for 16 queries, and two such vectors make a row of pairs of p^T as the products take it.
 *
 * q, k and v are multiplied as they are, c is multiplied into the sums in f32; only the sign of c goes into q. The
 * instruction reads subnormal numbers as zero: the loss is below 2^-126. A caller that gives a fixed m has checked that
 * no probability that counts is so small (attention/fixed_m.h).
 *
 * Loops. A job is a panel of 32 queries against one packed panel of keys, 128 keys. block_kv_compute keys stay in the
 * second-level cache while all their jobs run. A job computes s^T strip by strip: 32 keys, 2 x 2 tiles. Then it adds to
 * o^T step by step: 32 elements of D, 2 x 2 tiles, summed in registers over the keys of the job. A slot is the time in
 * which the logits of one strip are computed. During a slot, the probabilities of the previous strip are computed, and
 * some steps of o^T of an earlier job are added. So the tile unit and the vector units work side by side. Products and
 * probabilities take turns in small units, because a processor looks only some hundred instructions ahead. The sums of
 * a strip or step are stored between the first products of the next one. k and v are loaded past the first-level cache,
 * which has room for q, s, p and o of one panel of queries. */
#include "attn_bf16_amx.h"

#include "../avx512/exp2_short_avx512.h"

#include "../attn_lanes.h"
#include "panels_amx.h"

enum {
    SLICE = 8, /* number of keys whose probabilities are computed at a time */
    SLICES = STRIP / SLICE,
    UNITS = 2 * SLICES, /* units of work on the probabilities of a strip, for each half of the queries and each slice */
    RISE = 8,           /* with the online softmax, m is raised when a logit exceeds it by more than this */
    ROWS_AHEAD = 16     /* packing prefetches a row while it reads the row this many rows earlier */
};

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

/* Loads elements [d, d + STEP) of a row of D numbers. Elements beyond D, and all elements of an absent row (NULL), are
 * zeros. */
static inline __m512i load_step(const char *row, int64_t d, int64_t D)
{
    if (row == NULL)
        return _mm512_setzero_si512();
    __mmask32 there = D - d >= STEP ? 0xffffffffu : (1u << (D - d)) - 1u;
    return _mm512_maskz_loadu_epi16(there, row + 2 * d);
}

/* Packs one strip of 32 keys as tiles of 16 keys by 32 elements. */
static void pack_keys(char *k, const ith_attn_pack *p, int64_t first)
{
    for (int64_t i = 0; i < STRIP; i++) {
        const char *row = key_row(p, p->k, first + i);
        fetch_row(p, p->k, first + i + ROWS_AHEAD);
        fetch_row(p, p->v, first + i + ROWS_AHEAD);
        for (int64_t d = 0; d < p->head_dim; d += STEP)
            _mm512_store_si512(k + d / STEP * PAIR_BYTES + i * TILE_ROW_BYTES, load_step(row, d, p->head_dim));
    }
}

/* Packs the values of strip n of a panel (32 keys) as tiles of 16 elements by 32 keys. */
static void pack_values(char *panel, const ith_attn_pack *p, int64_t first, int64_t n)
{
    const char *row[STRIP];
    for (int64_t i = 0; i < STRIP; i++)
        row[i] = key_row(p, p->v, first + i);
    for (int64_t d = 0; d < p->head_dim; d += STEP) {
        __m512i even[LANES], odd[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            even[i] = load_step(row[2 * i], d, p->head_dim);
            odd[i] = load_step(row[2 * i + 1], d, p->head_dim);
        }
        store_pairs(panel_values(panel, p->head_dim, d / STEP) + n * PAIR_BYTES, even, odd);
    }
}

static void pack(const ith_attn_pack *p)
{
    int64_t D = p->head_dim, bytes = panel_bytes(D);
    char *panel = (char *)p->packed + p->first / PANEL * bytes;
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += bytes) {
        for (int64_t n = 0; n < STRIPS; n++) {
            pack_keys(panel_keys(panel, D, n), p, first + n * STRIP);
            pack_values(panel, p, first + n * STRIP, n);
        }
        head_of(panel, D)->biased = pack_biases(panel_bias(panel, D), p, first, PANEL);
    }
}

/* ---- Queries --------------------------------------------------------------------------------------------------- */

/* Packs the queries, transposed, as tiles [16 pairs of elements][16 queries]. If scale is negative, the signs of all
 * elements are changed. */
static void load_queries(work *w)
{
    const ith_attn_call *call = w->t.call;
    const __m512i sign = _mm512_set1_epi16(call->scale < 0.0f ? INT16_MIN : 0);
    for (int64_t i = 0; i < w->t.rows; i += LANES) {
        char *q = w->q + i / QUERIES * w->steps * PAIR_BYTES + i % QUERIES / LANES * TILE_BYTES;
        for (int64_t d = 0; d < w->t.D; d += STEP, q += PAIR_BYTES) {
            vec x[LANES];
            for (int64_t n = 0; n < LANES; n++) {
                const char *row = i + n < call->q_rows ? call->q[i + n] : NULL;
                x[n] = _mm512_castsi512_ps(_mm512_xor_si512(sign, load_step(row, d, w->t.D)));
            }
            vec_transpose(x);
            for (int64_t n = 0; n < LANES; n++)
                vec_store((float *)(q + n * TILE_ROW_BYTES), x[n]);
        }
    }
}

/* Multiplies the outputs o of LANES queries from i on by factor. */
static void scale_o(const work *w, int64_t i, vec factor)
{
    float *o = lanes_o(&w->t, i);
    for (int64_t d = 0; d < w->t.padded; d++, o += QUERIES)
        vec_store(o, vec_mul(factor, vec_load(o)));
}

/* Loads m, l and o of earlier calls. The sum l' of rounded probabilities is not kept between calls, so it starts as
 * l. */
static void load_state(work *w)
{
    lanes_load(&w->t);
    memcpy(w->rounded, w->t.l, (size_t)w->t.rows * sizeof *w->rounded);
}

/* Multiplies o by l / l', where l' is the sum of rounded probabilities. Then writes the outputs in the last call,
 * otherwise m, l and o. */
static void store_state(work *w)
{
    for (int64_t i = 0; i < w->t.rows; i += LANES) {
        vec rounded = vec_load(w->rounded + i), one = vec_set(1.0f);
        __mmask16 some = _mm512_cmp_ps_mask(rounded, vec_set(0.0f), _CMP_NEQ_UQ);
        scale_o(w, i, _mm512_mask_div_ps(one, some, vec_load(w->t.l + i), rounded));
    }
    lanes_store(&w->t);
}

/* ---- Probabilities of a strip: 32 keys, for 16 queries at a time (`half` of a panel) ---------------------------- */

/* Turns the dot products of the pending strip of 32 keys into logits, s = c s + b, for 16 queries. Then applies the
 * mask. */
static __attribute__((noinline)) void finish_logits(const work *w, int64_t half)
{
    const ith_attn_call *call = w->t.call;
    const float *b = panel_bias(w->pending->panel, w->t.D) + w->n * STRIP;
    float *s = w->logits;
    int64_t key = w->pending->key + w->n * STRIP;
    for (int64_t k = 0; k < STRIP; k++)
        vec_store(s + k * LANES, vec_fma(vec_load(s + k * LANES), vec_set(w->c), vec_set(b[k])));
    if (call->mask_kind != ITH_MASK_NONE)
        mask_lanes(call, s, LANES, key, ith_min64(STRIP, call->keys - key), w->pending->i + half * LANES);
}

/* Multiplies pairs of probabilities in bf16 by powers of two. */
static inline __m512i scale_pairs(__m512i pairs, vec scale)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512i low = _mm512_castps_si512(vec_mul(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), scale));
    __m512i high = _mm512_castps_si512(vec_mul(_mm512_castsi512_ps(_mm512_and_si512(pairs, upper)), scale));
    return _mm512_or_si512(_mm512_srli_epi32(low, 16), _mm512_and_si512(high, upper));
}

/* Raises the offset m of each query (lane) in `higher` to the next integer above `top`. The sums l and l', the factor
 * of older outputs and the probabilities that the job has already stored are multiplied by 2^(old m - new m). */
static __attribute__((noinline)) void raise_maxima(work *w, int64_t half, __mmask16 higher, vec top)
{
    job *j = w->pending;
    int64_t i = j->i + half * LANES;
    vec old = vec_load(w->t.m + i), one = vec_set(1.0f);
    vec m = _mm512_mask_roundscale_ps(old, higher, top, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(m), vec_set(FLT_MAX), _CMP_LE_OQ);
    vec scale = _mm512_mask_scalef_ps(one, higher, one, vec_sub(old, m));
    float *const scaled[] = {w->t.l + i, w->rounded + i, j->scale + half * LANES};
    vec_store(w->t.m + i, m);
    vec_store(w->t.shift + i, _mm512_maskz_mov_ps(finite, m));
    for (int n = 0; n < 3; n++)
        vec_store(scaled[n], vec_mul(vec_load(scaled[n]), scale));
    for (int64_t n = 0; n <= w->n; n++)
        for (char *p = j->p + n * PAIR_BYTES + half * TILE_BYTES, *end = p + TILE_BYTES;
             p < end && p != w->probabilities; p += TILE_ROW_BYTES)
            _mm512_store_si512(p, scale_pairs(_mm512_load_si512(p), scale));
}

/* Replaces SLICE logits x by s = c x, rounded, before m is subtracted, in lanes where abs(m) > 2^12. m comes from
 * rounded logits: an unrounded c x could exceed m by half a unit in the last place, which is much if m is large. */
static __attribute__((noinline)) void round_logits(float *s, vec factor, __mmask16 large)
{
    for (int64_t k = 0; k < SLICE; k++, s += LANES) {
        vec x = vec_load(s);
        vec_store(s, _mm512_mask_mul_ps(x, large, x, factor));
    }
}

/* Returns the largest of SLICE numbers in each lane. Two chains of comparisons hide their latency. */
static inline vec top_of(const float *s)
{
    vec a = vec_load(s), b = vec_load(s + LANES);
#pragma GCC unroll 8
    for (int64_t k = 2; k < SLICE; k += 2) {
        a = vec_max(vec_load(s + k * LANES), a);
        b = vec_max(vec_load(s + (k + 1) * LANES), b);
    }
    return vec_max(a, b);
}

/* Raises the maxima for SLICE logits, factor times s. Returns the factors of the logits, which may be rounded now. */
static inline vec follow_maxima(work *w, int64_t half, float *s, vec factor)
{
    const float *m = w->t.m + w->pending->i + half * LANES;
    vec top = vec_mul(factor, top_of(s));
    __mmask16 higher = _mm512_cmp_ps_mask(top, vec_add(vec_load(m), vec_set(RISE)), _CMP_GT_OQ);
    if (higher)
        raise_maxima(w, half, higher, top);
    __mmask16 large = _mm512_cmp_ps_mask(_mm512_abs_ps(vec_load(m)), vec_set(0x1p12f), _CMP_GT_OQ);
    if (large)
        round_logits(s, factor, large);
    return _mm512_mask_mov_ps(factor, large, vec_set(1.0f));
}

/* Picks the upper halves of the lanes of two vectors (_mm512_permutex2var_epi16), as pairs. */
static const _Alignas(64) uint16_t upper_halves[2 * LANES] = {1,  33, 3,  35, 5,  37, 7,  39, 9,  41, 11,
                                                              43, 13, 45, 15, 47, 17, 49, 19, 51, 21, 53,
                                                              23, 55, 25, 57, 27, 59, 29, 61, 31, 63};

/* Combines two probabilities in each lane into a pair of bf16 numbers, rounded to nearest. */
static inline __m512i pairs_of(vec low, vec high)
{
    const __m512i half_unit = _mm512_set1_epi32(0x8000);
    __m512i a = _mm512_add_epi32(_mm512_castps_si512(low), half_unit);
    __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half_unit);
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(upper_halves), b);
}

/* Computes the probabilities of SLICE keys from their logits, factor times s, for half of the queries. Stores them in
 * bf16, and adds them to l and, after rounding, to l'. */
static inline void slice_probabilities(const work *w, int64_t half, const float *s, vec factor)
{
    const int64_t i = w->pending->i + half * LANES;
    char *p = w->probabilities;
    float *l = w->t.l + i, *rounded = w->rounded + i;
    vec shift = vec_load(w->t.shift + i), even = vec_set(0.0f), odd = even, sum[2] = {even, even};
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
#pragma GCC unroll 8
    for (int64_t k = 0; k < SLICE; k += 2) {
        vec a = vec_exp2_short(_mm512_fmsub_ps(vec_load(s + k * LANES), factor, shift));
        vec b = vec_exp2_short(_mm512_fmsub_ps(vec_load(s + (k + 1) * LANES), factor, shift));
        __m512i pairs = pairs_of(a, b);
        _mm512_store_si512(p + k / 2 * TILE_ROW_BYTES, pairs);
        even = vec_add(even, a);
        odd = vec_add(odd, b);
        sum[k / 2 % 2] = _mm512_dpbf16_ps(sum[k / 2 % 2], (__m512bh)pairs, ones);
    }
    vec_store(l, vec_add(vec_load(l), vec_add(even, odd)));
    vec_store(rounded, vec_add(vec_load(rounded), vec_add(sum[0], sum[1])));
}

/* Does the next `count` units of work on the pending strip: each computes the probabilities of SLICE keys for half of
 * the queries. */
static __attribute__((noinline)) void next_units(work *w, int64_t count)
{
    const bool online = w->t.call->softmax == ITH_SOFTMAX_ONLINE;
    for (; count > 0; count--, w->unit++) {
        const int64_t half = w->unit / SLICES;
        const bool unfinished = w->pending->unfinished;
        vec factor = vec_set(unfinished ? 1.0f : w->c);
        if (unfinished && w->unit % SLICES == 0)
            finish_logits(w, half);
        if (online)
            factor = follow_maxima(w, half, w->logits, factor);
        slice_probabilities(w, half, w->logits, factor);
        w->logits += SLICE * LANES, w->probabilities += SLICE / 2 * TILE_ROW_BYTES;
    }
}

/* Does the units of work that are due after a group of products. */
static inline __attribute__((always_inline)) void compute_pending(work *w)
{
    int64_t due = 0;
    for (w->credit += w->units; w->credit >= w->groups; w->credit -= w->groups)
        due++;
    if (due)
        next_units(w, due);
    tiles_see_memory();
}

/* ---- Products: squares of 2 x 2 tiles of sums in registers 0 to 3 ----------------------------------------------- */

/* STORE_SUM writes the sums of tile register n to their place in w->unstored. BEGIN_SUM reads the register from its
 * place in the outputs o, or clears it if o is NULL. n must be a literal number. */
#define STORE_SUM(n) _tile_stored(n, w->unstored + (n) % 2 * w->below + (n) / 2 * w->beside, w->row_bytes)
#define BEGIN_SUM(n, o)                                                                                                \
    if ((o) != NULL)                                                                                                   \
        _tile_loadd(n, (o) + (n) % 2 * TILE_ROWS * QUERIES + (n) / 2 * LANES, QUERIES * sizeof(float));                \
    else                                                                                                               \
        _tile_zero(n)

/* Records that the tile registers hold logits of one strip of 32 keys, which still have to be written to s. */
static inline void will_store_logits(work *w, float *s)
{
    w->unstored = s;
    w->below = TILE_ROWS * LANES, w->beside = STRIP * LANES, w->row_bytes = TILE_ROW_BYTES;
}

/* Records that the tile registers hold outputs for 32 elements of D (STEP), which still have to be written to o. */
static inline void will_store_o(work *w, float *o)
{
    w->unstored = o;
    w->below = TILE_ROWS * QUERIES, w->beside = LANES, w->row_bytes = QUERIES * sizeof(float);
}

/* Begins new sums in tile registers 0 to 3 with a first product, which is added to the outputs `from` or, if `from` is
 * NULL, to zeros. The previous sums in the registers are stored one by one, each when its register is needed: four
 * stores in a row would leave the tile unit without work. */
static inline __attribute__((always_inline)) void begin_sums(work *w, const char *a, const char *b, const float *from)
{
    _tile_stream_loadd(4, a, TILE_ROW_BYTES);
    _tile_loadd(6, b, TILE_ROW_BYTES);
    STORE_SUM(0);
    BEGIN_SUM(0, from);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(5, a + TILE_BYTES, TILE_ROW_BYTES);
    STORE_SUM(1);
    BEGIN_SUM(1, from);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(7, b + TILE_BYTES, TILE_ROW_BYTES);
    STORE_SUM(2);
    BEGIN_SUM(2, from);
    _tile_dpbf16ps(2, 4, 7);
    STORE_SUM(3);
    BEGIN_SUM(3, from);
    _tile_dpbf16ps(3, 5, 7);
    compute_pending(w);
}

/* Adds `count` products of tiles to the 2 x 2 tiles of sums in registers 0 to 3. The factors are consecutive pairs of
 * tiles from a and from b on. */
static inline __attribute__((always_inline)) void add_to_sums(work *w, const char *a, const char *b, int64_t count)
{
    for (; count > 0; count--, a += PAIR_BYTES, b += PAIR_BYTES) {
        _tile_stream_loadd(4, a, TILE_ROW_BYTES);
        _tile_loadd(6, b, TILE_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_stream_loadd(5, a + TILE_BYTES, TILE_ROW_BYTES);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(7, b + TILE_BYTES, TILE_ROW_BYTES);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
        compute_pending(w);
    }
}

/* Writes the sums in the tile registers to w->unstored. */
static void store_sums(work *w)
{
    STORE_SUM(0);
    STORE_SUM(1);
    STORE_SUM(2);
    STORE_SUM(3);
    tiles_see_memory();
    will_store_logits(w, w->nowhere);
}

/* Computes the dot products k q^T of strip n (32 keys) of job j. The results stay in the tile registers, and are
 * written to s later. */
static void score_strip(work *w, const job *j, int64_t n, float *s)
{
    const char *k = panel_keys(j->panel, w->t.D, n);
    const char *q = w->q + j->i / QUERIES * w->steps * PAIR_BYTES;
    begin_sums(w, k, q, NULL);
    will_store_logits(w, s);
    add_to_sums(w, k + PAIR_BYTES, q + PAIR_BYTES, w->steps - 1);
}

/* Adds v^T p^T, summed over the keys of job j, to elements [step STEP, (step + 1) STEP) of the outputs o^T. */
static void add_step(work *w, const job *j, int64_t step)
{
    float *o = lanes_o(&w->t, j->i) + step * STEP * QUERIES;
    const char *v = panel_values(j->panel, w->t.D, step);
    begin_sums(w, v, j->p, o);
    will_store_o(w, o);
    add_to_sums(w, v + PAIR_BYTES, j->p + PAIR_BYTES, j->strips - 1);
}

/* Multiplies the outputs of a job's queries by 2^(m - m') where a maximum has risen from m to m'. */
static void rescale(work *w, const job *j)
{
    for (int64_t half = 0; half < 2; half++) {
        vec scale = vec_load(j->scale + half * LANES);
        if (_mm512_cmp_ps_mask(scale, vec_set(1.0f), _CMP_NEQ_UQ) == 0)
            continue;
        store_sums(w);
        scale_o(w, j->i + half * LANES, scale);
    }
}

/* ---- The call -------------------------------------------------------------------------------------------------- */

/* Returns job number t of the call. The packed panels of keys of a block (block_kv_compute) follow each other for one
 * panel of queries, whose outputs o stay in the first-level cache meanwhile. */
static job job_at(const work *w, int64_t t)
{
    const int64_t keys = w->t.call->keys, per_block = w->q_panels * (w->block / PANEL);
    const int64_t block = t / per_block * w->block, number = t % per_block;
    const int64_t panels = ith_div_up(ith_min64(w->block, keys - block), PANEL);
    const int64_t key = block + number % panels * PANEL;
    job j = {.key = key, .i = number / panels * QUERIES, .p = w->p[t % 2], .scale = w->scale[t % 3]};
    j.strips = ith_div_up(ith_min64(PANEL, keys - key), STRIP);
    j.panel = (const char *)w->t.call->packed + key / PANEL * w->panel_bytes;
    j.unfinished = w->t.call->mask_kind != ITH_MASK_NONE || head_of(j.panel, w->t.D)->biased;
    lanes_fill(j.scale, 1.0f);
    return j;
}

/* Plans the prefetch of the block of packed keys that follows the block to which job j attends. */
static fetch next_block(const work *w, const job *j)
{
    int64_t bytes = w->block / PANEL * w->panel_bytes;
    return fetch_panels(w->t.call, j->panel, bytes, w->q_panels * (w->block / STRIP));
}

/* Adds steps [begin, end) of p v of job j to o^T. */
static void add_steps(work *w, const job *j, int64_t begin, int64_t end)
{
    if (begin == 0 && end > 0)
        rescale(w, j);
    for (int64_t step = begin; step < end; step++)
        add_step(w, j, step);
}

/* Computes the dot products of strip n (32 keys) of job `now`, and adds steps [begin, end) of p v of job `before`, if
 * it is not NULL, to o^T. Meanwhile it computes the probabilities of the pending strip. Then strip n is pending. */
static void run_slot(work *w, job *now, int64_t n, const job *before, int64_t begin, int64_t end)
{
    float *s = w->s[w->slot++ % 2];
    w->groups = w->steps + (before ? (end - begin) * before->strips : 0);
    fetch_some(&w->ahead);
    score_strip(w, now, n, s);
    if (before)
        add_steps(w, before, begin, end);
    w->pending = now, w->n = n;
    w->logits = s, w->probabilities = now->p + n * PAIR_BYTES;
    w->unit = w->credit = 0, w->units = UNITS;
}

/* Computes the probabilities of the last strip of the call, and adds to o^T steps [added, w->steps) of p v of job
 * `before`, unless it is NULL, and all steps of the last job. */
static void finish_jobs(work *w, const job *before, int64_t added)
{
    store_sums(w);
    next_units(w, w->units);
    w->units = 0;
    if (before)
        add_steps(w, before, added, w->steps);
    if (w->pending)
        add_steps(w, w->pending, 0, w->steps);
    store_sums(w);
}

/* Runs all jobs of the call. Slot 0 of job t completes the probabilities of job t - 1. So p v of job t - 1 is added to
 * o in the next slots, and in slot 0 of job t + 1, with about the same number of steps each. Three jobs are at work at
 * the same time. */
static void run_jobs(work *w)
{
    const int64_t jobs = w->q_panels * ith_div_up(w->t.call->keys, PANEL), steps = w->steps;
    job job_of[3], *before = NULL;
    int64_t added = 0; /* number of steps of `before` that are added */
    will_store_logits(w, w->nowhere);
    for (int64_t t = 0; t < jobs && !ith_attn_halted(w->t.call); t++) {
        job *now = &job_of[t % 3];
        *now = job_at(w, t);
        if (now->i == 0 && now->key % w->block == 0)
            w->ahead = next_block(w, now);
        run_slot(w, now, 0, before, added, steps);
        before = t > 0 ? &job_of[(t - 1) % 3] : NULL, added = 0;
        for (int64_t n = 1; n < now->strips; n++) {
            const int64_t end = steps * n / now->strips;
            run_slot(w, now, n, before, added, end);
            added = end;
        }
    }
    finish_jobs(w, before, added);
}

static void attend(const ith_attn_call *call)
{
    ith_arena arena = {.base = call->scratch};
    work w = lay_out(&arena, call->q_rows, call->head_dim, call->tiles.block_kv_compute);
    w.t.call = call;
    w.c = fabsf(call->scale) * (float)M_LOG2E;
    tiles_claim();
    load_queries(&w);
    load_state(&w);
    const unsigned mode = vec_flush_begin(); /* the products of AMX flush small results in every mode */
    run_jobs(&w);
    vec_flush_end(mode);
    store_state(&w);
    _tile_release();
}

void ith_attn_bf16_amx_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_bf16_amx_attend(const ith_attn_call *call)
{
    attend(call);
}
