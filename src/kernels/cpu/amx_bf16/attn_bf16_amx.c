/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of bf16 tensors with AMX (TDPBF16PS: products of 16 x 32 by 32 x 16 bf16 onto 16 x 16 f32).
 *
 *     s_ij = c (q_i . k_j) + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = l_i / l'_i sum_j p'_ij v_j
 *
 * with p' the weights rounded to bf16 and l' their sum: o / l is then a mean whose weights add up to 1, and the value
 * of a lone key comes out as it went in. Because of that m need not be the maximum. Online it is an integer, raised
 * only when a logit exceeds it by more than RISE: scaling by 2^(m - m') is exact, also of weights that are already
 * rounded, and rare.
 *
 * Everything is computed transposed: s^T = k q^T, o^T = v^T p^T. A vector then holds one key's weights for 16 queries,
 * so that maxima and sums run down the lanes, and two such vectors make a row of pairs of p^T as the products want it.
 *
 * q, k and v are multiplied as they come, c in f32 on the sums (its sign goes into q). The instruction takes denormals
 * for zero: what is lost is below 2^-126, and fixed_m's gate keeps weights that matter above it.
 *
 * Packed. Panels of PANEL keys: k in tiles [PANEL / STRIP][D / 32][2][16 keys][32] | v transposed in tiles
 * [D / 32][PANEL / STRIP][2][16 of D][32 keys] | flag | b [PANEL]. D is filled up with zeros, the last panel with
 * absent keys (b = -inf, k = v = 0).
 *
 * Loops. A job is a group of 32 queries against block_kv_compute keys; the groups of a run take turns with every block
 * of keys, which stays in the second-level cache. A job goes by strips of 32 keys, each 2 x 2 tiles of s^T, and then by
 * chunks of 32 of D, each 2 x 2 tiles of o^T, summed over the job's keys in registers. While a strip's products run,
 * the weights of the strip before are computed and a share of the job before is added to its o: a slot. The tile unit
 * and the vector units work side by side, and the sums of one product are stored between the first steps of the next.
 */
#include "../avx512/exp2_short_avx512.h"

#include "../attn_fetch.h"
#include "../attn_pass.h"
#include "pairs_amx.h"

enum {
    GROUP = 2 * TILE_ROWS,       /* queries */
    STRIP = 2 * TILE_ROWS,       /* keys */
    PANEL = 128,                 /* keys */
    STRIPS = PANEL / STRIP,      /* of a panel */
    STEP = 32,                   /* elements of D that a product of tiles sums over, or gives */
    PAIR_BYTES = 2 * TILE_BYTES, /* the two tiles of a factor */
    SQUARE_FLOATS = 4 * TILE_FLOATS,
    RISE = 8,
    ROWS_AHEAD = 16 /* that packing fetches */
};

static bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return dtype == ITH_BF16 && attn_takes(dtype, head_dim, softmax);
}

static ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {512, 8192, 4 * PANEL, PANEL},
                                  .step = {GROUP, PANEL, PANEL, PANEL},
                                  .most = {128 * GROUP, 16384 * PANEL, 32 * PANEL, PANEL}};
}

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

static int64_t padded_dim(int64_t D)
{
    return ith_round_up(D, STEP);
}

/* Of k, and as many of v. */
static int64_t panel_factor_bytes(int64_t D)
{
    return PANEL * padded_dim(D) * 2;
}

static int64_t panel_bytes(int64_t D)
{
    return 2 * panel_factor_bytes(D) + (ALIGN_FLOATS + PANEL) * (int64_t)sizeof(float);
}

static int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    return packed_panels(keys, PANEL, panel_bytes(head_dim));
}

/* k of strip n. */
static const char *panel_keys(const char *panel, int64_t D, int64_t n)
{
    return panel + n * STRIP * padded_dim(D) * 2;
}

/* v of a chunk. */
static const char *panel_values(const char *panel, int64_t D, int64_t chunk)
{
    return panel + panel_factor_bytes(D) + chunk * STRIPS * PAIR_BYTES;
}

/* Not 0 if a key of the panel is absent or has a bias. */
static const float *panel_flag(const char *panel, int64_t D)
{
    return (const float *)(panel + 2 * panel_factor_bytes(D));
}

static const float *panel_bias(const char *panel, int64_t D)
{
    return panel_flag(panel, D) + ALIGN_FLOATS;
}

/* STEP elements of a row from d on as they are, zeros behind its end; of an absent row zeros. */
static inline __m512i load_step(const char *row, int64_t d, int64_t D)
{
    if (row == NULL)
        return _mm512_setzero_si512();
    __mmask32 there = D - d >= STEP ? 0xffffffffu : (1u << (D - d)) - 1u;
    return _mm512_maskz_loadu_epi16(there, row + 2 * d);
}

/* Tiles [16 keys][32 of D]. */
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

/* Tiles [16 of D][32 keys]. */
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
        store_pairs((char *)panel_values(panel, p->head_dim, d / STEP) + n * PAIR_BYTES, even, odd);
    }
}

static void pack(const ith_attn_pack *p)
{
    int64_t D = p->head_dim, bytes = panel_bytes(D);
    char *panel = (char *)p->packed + p->first / PANEL * bytes;
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += bytes) {
        for (int64_t n = 0; n < STRIPS; n++) {
            pack_keys((char *)panel_keys(panel, D, n), p, first + n * STRIP);
            pack_values(panel, p, first + n * STRIP, n);
        }
        bool biased = pack_biases((float *)panel_bias(panel, D), p, first, PANEL);
        *(float *)panel_flag(panel, D) = biased ? 1.0f : 0.0f;
    }
}

/* ---- Scratch --------------------------------------------------------------------------------------------------- */

/* What a group of queries has summed up besides o. shift: m, or 0 where that is not finite. */
typedef struct group {
    float m[GROUP], shift[GROUP], l[GROUP], rounded[GROUP]; /* rounded: l' */
} group;

typedef struct job {
    const char *panels;
    int64_t strips;
    int64_t key, row; /* the first ones, of the run */
    const char *q;
    float *o;
    group *g;
    char *p;      /* [strips][2] tiles of pairs [16][16 queries][2] */
    float *scale; /* [GROUP]: what older o are multiplied by before p v is added */
} job;

typedef struct work {
    const ith_attn_call *call;
    int64_t D, steps, panel_bytes, groups, block; /* steps: of D; block: keys */
    float c;
    bool online;
    char *q;  /* [groups][steps][2] tiles of pairs [16][16 queries][2] */
    float *o; /* [groups][steps][2][2] tiles [16 of D][16 queries] */
    group *g; /* [groups] */
    char *p[2];
    float *scale[2], *s[2]; /* s: a strip's [2][2] tiles [16 keys][16 queries] */
    float *unstored;        /* where the sums in tile registers belong; `nowhere` if nobody needs them */
    float *nowhere;
    pass t; /* the rows of one group, as a run knows them */
    /* The weights to be computed along with the products of a slot: of strip n of `weighed`. */
    job *weighed;
    int64_t n, unit, units, credit, products;
    float *logits;
    float factor[GROUP]; /* c, or 1 where it is in the logits */
    fetch ahead;         /* the next block of keys, while the groups take turns with this one */
} work;

/* Where in scratch everything lies, in bytes. */
typedef struct layout {
    int64_t s[2], p[2], scale[2], sums, g, q, o, rows, bytes;
} layout;

static int64_t carve(layout *y, int64_t bytes)
{
    int64_t at = y->bytes;
    y->bytes += ith_round_up(bytes, 64);
    return at;
}

static layout layout_of(int64_t D, int64_t groups, int64_t block)
{
    layout y = {.bytes = 0};
    int64_t float_bytes = sizeof(float), padded = padded_dim(D);
    for (int i = 0; i < 2; i++) {
        y.s[i] = carve(&y, SQUARE_FLOATS * float_bytes);
        y.p[i] = carve(&y, GROUP * block * 2);
        y.scale[i] = carve(&y, GROUP * float_bytes);
    }
    y.sums = carve(&y, SQUARE_FLOATS * float_bytes);
    y.g = carve(&y, groups * (int64_t)sizeof(group));
    y.q = carve(&y, groups * GROUP * padded * 2);
    y.o = carve(&y, groups * GROUP * padded * float_bytes);
    y.rows = carve(&y, pass_floats(GROUP, padded, 0) * float_bytes);
    return y;
}

static int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    return layout_of(head_dim, ith_div_up(tiles->block_q, GROUP), tiles->block_kv_compute).bytes;
}

static work work_of(const ith_attn_call *call)
{
    work w = {.call = call,
              .D = call->head_dim,
              .steps = padded_dim(call->head_dim) / STEP,
              .block = call->tiles.block_kv_compute};
    w.panel_bytes = panel_bytes(w.D);
    w.groups = ith_div_up(call->q_rows, GROUP);
    w.c = fabsf(call->scale) * (float)M_LOG2E;
    w.online = call->softmax == ITH_SOFTMAX_ONLINE;
    layout y = layout_of(w.D, w.groups, w.block);
    char *at = call->scratch;
    for (int i = 0; i < 2; i++) {
        w.s[i] = (float *)(at + y.s[i]);
        w.p[i] = at + y.p[i];
        w.scale[i] = (float *)(at + y.scale[i]);
    }
    w.nowhere = (float *)(at + y.sums);
    w.g = (group *)(at + y.g);
    w.q = at + y.q;
    w.o = (float *)(at + y.o);
    w.t = pass_in((float *)(at + y.rows), GROUP, w.steps * STEP, 0);
    return w;
}

/* The queries transposed, with the sign of scale. */
static void load_queries(work *w)
{
    const ith_attn_call *call = w->call;
    const __m512i sign = _mm512_set1_epi16(call->scale < 0.0f ? INT16_MIN : 0);
    for (int64_t i = 0; i < w->groups * GROUP; i += LANES) {
        char *q = w->q + i / GROUP * w->steps * PAIR_BYTES + i % GROUP / LANES * TILE_BYTES;
        for (int64_t d = 0; d < w->D; d += STEP, q += PAIR_BYTES) {
            vec x[LANES];
            for (int64_t n = 0; n < LANES; n++) {
                const char *row = i + n < call->q_rows ? call->q[i + n] : NULL;
                x[n] = _mm512_castsi512_ps(_mm512_xor_si512(sign, load_step(row, d, w->D)));
            }
            vec_transpose(x);
            for (int64_t n = 0; n < LANES; n++)
                vec_store((float *)(q + n * TILE_ROW_BYTES), x[n]);
        }
    }
}

/* ---- State, between the rows of a run and the lanes of a group ------------------------------------------------- */

/* The part of a run that concerns the queries of one group. */
static ith_attn_call call_of_group(const ith_attn_call *call, int64_t n)
{
    int64_t row = n * GROUP;
    ith_attn_call part = *call;
    part.q_rows = ith_min64(GROUP, call->q_rows - row);
    part.o_sum = call->o_sum != NULL ? call->o_sum + row * call->head_dim : NULL;
    part.m = call->m != NULL ? call->m + row : NULL;
    part.l = call->l != NULL ? call->l + row : NULL;
    part.o = call->o != NULL ? call->o + row : NULL;
    part.lse = call->lse != NULL ? call->lse + row : NULL;
    return part;
}

/* Element d of a half of a group's queries. */
static inline float *o_at(const work *w, int64_t n, int64_t d, int64_t half)
{
    return w->o + (n * w->steps + d / STEP) * SQUARE_FLOATS + half * 2 * TILE_FLOATS + d % STEP * LANES;
}

/* Older sums count as rounded. */
static void load_group(work *w, int64_t n)
{
    ith_attn_call part = call_of_group(w->call, n);
    pass_load_state(&w->t, &part);
    for (int64_t i = 0; i < GROUP; i++) {
        w->g[n].m[i] = w->t.m[i];
        w->g[n].shift[i] = w->t.shift[i];
        w->g[n].l[i] = w->g[n].rounded[i] = w->t.l[i * LANES];
    }
    for (int64_t half = 0; half < 2; half++)
        for (int64_t d = 0; d < w->steps * STEP; d += LANES) {
            vec x[LANES];
            for (int64_t i = 0; i < LANES; i++)
                x[i] = vec_load(w->t.o + (half * LANES + i) * w->t.o_stride + d);
            vec_transpose(x);
            for (int64_t i = 0; i < LANES; i++)
                vec_store(o_at(w, n, d + i, half), x[i]);
        }
}

/* o l / l'. */
static void store_group(work *w, int64_t n)
{
    ith_attn_call part = call_of_group(w->call, n);
    for (int64_t i = 0; i < GROUP; i++) {
        w->t.m[i] = w->g[n].m[i];
        w->t.shift[i] = w->g[n].shift[i];
        vec_store(w->t.l + i * LANES, vec_set(0.0f));
        w->t.l[i * LANES] = w->g[n].l[i];
    }
    for (int64_t half = 0; half < 2; half++) {
        vec rounded = vec_load(w->g[n].rounded + half * LANES), one = vec_set(1.0f);
        __mmask16 some = _mm512_cmp_ps_mask(rounded, vec_set(0.0f), _CMP_NEQ_UQ);
        vec ratio = _mm512_mask_div_ps(one, some, vec_load(w->g[n].l + half * LANES), rounded);
        for (int64_t d = 0; d < w->steps * STEP; d += LANES) {
            vec x[LANES];
            for (int64_t i = 0; i < LANES; i++)
                x[i] = vec_mul(ratio, vec_load(o_at(w, n, d + i, half)));
            vec_transpose(x);
            for (int64_t i = 0; i < LANES; i++)
                vec_store(w->t.o + (half * LANES + i) * w->t.o_stride + d, x[i]);
        }
    }
    pass_store(&w->t, &part);
}

/* ---- Weights of a strip: 32 keys, half of a group's queries at a time ------------------------------------------ */

/* [32 keys][16 queries] to [16][32], and back. */
static void queries_first(float *rows, const float *s)
{
    for (int64_t k = 0; k < STRIP; k += LANES) {
        vec x[LANES];
        for (int64_t i = 0; i < LANES; i++)
            x[i] = vec_load(s + (k + i) * LANES);
        vec_transpose(x);
        for (int64_t i = 0; i < LANES; i++)
            vec_store(rows + i * STRIP + k, x[i]);
    }
}

static void keys_first(float *s, const float *rows)
{
    for (int64_t k = 0; k < STRIP; k += LANES) {
        vec x[LANES];
        for (int64_t i = 0; i < LANES; i++)
            x[i] = vec_load(rows + i * STRIP + k);
        vec_transpose(x);
        for (int64_t i = 0; i < LANES; i++)
            vec_store(s + (k + i) * LANES, x[i]);
    }
}

static void mask_logits(const work *w, float *s, int64_t half)
{
    const ith_attn_call *call = w->call;
    float rows[LANES * STRIP];
    int64_t key = w->weighed->key + w->n * STRIP, keys = ith_min64(STRIP, call->keys - key);
    int64_t row = w->weighed->row + half * LANES, count = ith_min64(LANES, call->q_rows - row);
    queries_first(rows, s);
    for (int64_t i = 0; i < count; i++) {
        if (call->mask_kind == ITH_MASK_BOOL)
            pass_row_mask_bool(rows + i * STRIP, (const uint8_t *)call->mask[row + i] + key, keys);
        else
            pass_row_mask_additive(rows + i * STRIP, (const float *)call->mask[row + i] + key, keys);
    }
    keys_first(s, rows);
}

/* s = c s + b, and the mask. */
static __attribute__((noinline)) void finish_logits(const work *w, const char *panel, float *s, int64_t half)
{
    const float *b = panel_bias(panel, w->D) + w->n % STRIPS * STRIP;
    for (int64_t k = 0; k < STRIP; k++)
        vec_store(s + k * LANES, vec_fma(vec_load(s + k * LANES), vec_set(w->c), vec_set(b[k])));
    if (w->call->mask_kind != ITH_MASK_NONE)
        mask_logits(w, s, half);
}

/* Pairs of rounded weights times powers of two. */
static inline __m512i scale_pairs(__m512i pairs, vec scale)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512i low = _mm512_castps_si512(vec_mul(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), scale));
    __m512i high = _mm512_castps_si512(vec_mul(_mm512_castsi512_ps(_mm512_and_si512(pairs, upper)), scale));
    return _mm512_or_si512(_mm512_srli_epi32(low, 16), _mm512_and_si512(high, upper));
}

/* In the lanes of `higher`, m becomes the next integer from top on; everything summed up so far, and the job's weights
 * that are not, are measured from it. */
static __attribute__((noinline)) void raise_maxima(work *w, int64_t half, __mmask16 higher, vec top)
{
    job *j = w->weighed;
    int64_t at = half * LANES;
    vec old = vec_load(j->g->m + at), one = vec_set(1.0f);
    vec m = _mm512_mask_roundscale_ps(old, higher, top, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(m), vec_set(FLT_MAX), _CMP_LE_OQ);
    vec scale = _mm512_mask_scalef_ps(one, higher, one, vec_sub(old, m));
    vec_store(j->g->m + at, m);
    vec_store(j->g->shift + at, _mm512_maskz_mov_ps(finite, m));
    vec_store(j->g->l + at, vec_mul(vec_load(j->g->l + at), scale));
    vec_store(j->g->rounded + at, vec_mul(vec_load(j->g->rounded + at), scale));
    vec_store(j->scale + at, vec_mul(vec_load(j->scale + at), scale));
    for (int64_t n = 0; n < w->n; n++)
        for (int64_t i = 0; i < TILE_ROWS; i++) {
            char *pairs = j->p + n * PAIR_BYTES + half * TILE_BYTES + i * TILE_ROW_BYTES;
            _mm512_store_si512(pairs, scale_pairs(_mm512_load_si512(pairs), scale));
        }
}

/* Of logits so large that a unit in their last place matters to 2^s, s itself is rounded, so that s - m is at most 0.
 */
static __attribute__((noinline)) void round_logits(float *s, float *factor, __mmask16 large)
{
    vec f = vec_load(factor);
    for (int64_t k = 0; k < STRIP; k++) {
        vec x = vec_load(s + k * LANES);
        vec_store(s + k * LANES, _mm512_mask_mul_ps(x, large, x, f));
    }
    vec_store(factor, _mm512_mask_mov_ps(f, large, vec_set(1.0f)));
}

static inline vec top_of(const float *s)
{
    vec a = vec_set(-INFINITY), b = a;
    for (int64_t k = 0; k < STRIP; k += 2) {
        a = vec_max(vec_load(s + k * LANES), a);
        b = vec_max(vec_load(s + (k + 1) * LANES), b);
    }
    return vec_max(a, b);
}

/* What comes before the weights: masks, maxima. */
static inline void prepare(work *w, int64_t half)
{
    const job *j = w->weighed;
    const char *panel = j->panels + w->n / STRIPS * w->panel_bytes;
    float *s = w->logits + half * 2 * TILE_FLOATS, *factor = w->factor + half * LANES;
    bool finish = w->call->mask_kind != ITH_MASK_NONE || *panel_flag(panel, w->D) != 0.0f;
    if (finish)
        finish_logits(w, panel, s, half);
    vec f = vec_set(finish ? 1.0f : w->c);
    vec_store(factor, f);
    if (!w->online)
        return;
    const float *m = j->g->m + half * LANES;
    vec top = vec_mul(f, top_of(s));
    __mmask16 higher = _mm512_cmp_ps_mask(top, vec_add(vec_load(m), vec_set(RISE)), _CMP_GT_OQ);
    if (higher)
        raise_maxima(w, half, higher, top);
    __mmask16 large = _mm512_cmp_ps_mask(_mm512_abs_ps(vec_load(m)), vec_set(0x1p12f), _CMP_GT_OQ);
    if (large)
        round_logits(s, factor, large);
}

enum { PARTS = 2, PART = STRIP / PARTS }; /* keys */

/* Two weights a lane as bf16, rounded to nearest. */
static inline __m512i pairs_of(vec low, vec high)
{
    const __m512i half_unit = _mm512_set1_epi32(0x8000);
    __m512i a = _mm512_add_epi32(_mm512_castps_si512(low), half_unit);
    __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half_unit);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(a, 16), b);
}

/* p', l and l' of PART keys. */
static inline void weigh(const work *w, int64_t half, int64_t part)
{
    const job *j = w->weighed;
    const float *s = w->logits + half * 2 * TILE_FLOATS + part * PART * LANES;
    char *p = j->p + w->n * PAIR_BYTES + half * TILE_BYTES + part * PART / 2 * TILE_ROW_BYTES;
    float *l = j->g->l + half * LANES, *rounded = j->g->rounded + half * LANES;
    vec c = vec_load(w->factor + half * LANES), shift = vec_load(j->g->shift + half * LANES);
    vec even = vec_set(0.0f), odd = even, sum[2] = {vec_load(rounded), even};
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
#pragma GCC unroll 8
    for (int64_t k = 0; k < PART; k += 2) {
        vec a = vec_exp2_short(_mm512_fmsub_ps(vec_load(s + k * LANES), c, shift));
        vec b = vec_exp2_short(_mm512_fmsub_ps(vec_load(s + (k + 1) * LANES), c, shift));
        __m512i pairs = pairs_of(a, b);
        _mm512_store_si512(p + k / 2 * TILE_ROW_BYTES, pairs);
        even = vec_add(even, a);
        odd = vec_add(odd, b);
        sum[k / 2 % 2] = _mm512_dpbf16_ps(sum[k / 2 % 2], (__m512bh)pairs, ones);
    }
    vec_store(l, vec_add(vec_load(l), vec_add(even, odd)));
    vec_store(rounded, vec_add(sum[0], sum[1]));
}

enum { UNITS = 2 + 2 * PARTS };

/* The next unit of a slot's weights. */
static __attribute__((noinline)) void weigh_next(work *w)
{
    int64_t unit = w->unit++;
    if (unit < 2)
        prepare(w, unit);
    else
        weigh(w, (unit - 2) / PARTS, (unit - 2) % PARTS);
}

/* After every product: the units of a slot are spread evenly over its products. */
static inline __attribute__((always_inline)) void weigh_along(work *w)
{
    for (w->credit += w->units; w->credit >= w->products && w->unit < w->units; w->credit -= w->products)
        weigh_next(w);
    tiles_see_memory();
}

/* ---- Products: 2 x 2 tiles of sums in registers 0 to 3 --------------------------------------------------------- */

/* A first product, onto `from` or onto zeros (NULL). What the registers held is stored one by one, as each is needed:
 * all four in a row would leave the tile unit without work. */
static inline __attribute__((always_inline)) void begin_sums(work *w, const char *a, const char *b, const float *from)
{
    float *old = w->unstored;
    _tile_loadd(4, a, TILE_ROW_BYTES);
    _tile_loadd(6, b, TILE_ROW_BYTES);
    _tile_stored(0, old, TILE_ROW_BYTES);
    if (from != NULL)
        _tile_loadd(0, from, TILE_ROW_BYTES);
    else
        _tile_zero(0);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + TILE_BYTES, TILE_ROW_BYTES);
    _tile_stored(1, old + TILE_FLOATS, TILE_ROW_BYTES);
    if (from != NULL)
        _tile_loadd(1, from + TILE_FLOATS, TILE_ROW_BYTES);
    else
        _tile_zero(1);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(7, b + TILE_BYTES, TILE_ROW_BYTES);
    _tile_stored(2, old + 2 * TILE_FLOATS, TILE_ROW_BYTES);
    if (from != NULL)
        _tile_loadd(2, from + 2 * TILE_FLOATS, TILE_ROW_BYTES);
    else
        _tile_zero(2);
    _tile_dpbf16ps(2, 4, 7);
    _tile_stored(3, old + 3 * TILE_FLOATS, TILE_ROW_BYTES);
    if (from != NULL)
        _tile_loadd(3, from + 3 * TILE_FLOATS, TILE_ROW_BYTES);
    else
        _tile_zero(3);
    _tile_dpbf16ps(3, 5, 7);
    weigh_along(w);
}

/* `count` more, of pairs of tiles that follow one another. */
static inline __attribute__((always_inline)) void add_to_sums(work *w, const char *a, const char *b, int64_t count)
{
    for (; count > 0; count--, a += PAIR_BYTES, b += PAIR_BYTES) {
        _tile_loadd(4, a, TILE_ROW_BYTES);
        _tile_loadd(6, b, TILE_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + TILE_BYTES, TILE_ROW_BYTES);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(7, b + TILE_BYTES, TILE_ROW_BYTES);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
        weigh_along(w);
    }
}

/* Afterwards the registers hold nothing that anybody needs. */
static void store_sums(work *w)
{
    float *old = w->unstored;
    _tile_stored(0, old, TILE_ROW_BYTES);
    _tile_stored(1, old + TILE_FLOATS, TILE_ROW_BYTES);
    _tile_stored(2, old + 2 * TILE_FLOATS, TILE_ROW_BYTES);
    _tile_stored(3, old + 3 * TILE_FLOATS, TILE_ROW_BYTES);
    tiles_see_memory();
    w->unstored = w->nowhere;
}

/* s^T = k q^T of strip n. */
static void score_strip(work *w, const job *j, int64_t n, float *s)
{
    const char *k = panel_keys(j->panels + n / STRIPS * w->panel_bytes, w->D, n % STRIPS);
    begin_sums(w, k, j->q, NULL);
    w->unstored = s;
    add_to_sums(w, k + PAIR_BYTES, j->q + PAIR_BYTES, w->steps - 1);
}

/* o^T = o^T + v^T p^T of a chunk. */
static void add_chunk(work *w, const job *j, int64_t chunk)
{
    float *o = j->o + chunk * SQUARE_FLOATS;
    const char *panel = j->panels, *p = j->p;
    for (int64_t left = j->strips; left > 0; left -= STRIPS, panel += w->panel_bytes, p += STRIPS * PAIR_BYTES) {
        const char *v = panel_values(panel, w->D, chunk);
        int64_t count = ith_min64(left, STRIPS);
        if (left < j->strips) {
            add_to_sums(w, v, p, count);
            continue;
        }
        begin_sums(w, v, p, o);
        w->unstored = o;
        add_to_sums(w, v + PAIR_BYTES, p + PAIR_BYTES, count - 1);
    }
}

/* o^T = o^T 2^(m - m'). */
static void rescale(work *w, const job *j)
{
    for (int64_t half = 0; half < 2; half++) {
        vec scale = vec_load(j->scale + half * LANES);
        if (_mm512_cmp_ps_mask(scale, vec_set(1.0f), _CMP_NEQ_UQ) == 0)
            continue;
        store_sums(w);
        for (int64_t d = 0; d < w->steps * STEP; d++) {
            float *o = o_at(w, j->row / GROUP, d, half);
            vec_store(o, vec_mul(scale, vec_load(o)));
        }
    }
}

/* ---- The run --------------------------------------------------------------------------------------------------- */

static job job_at(const work *w, int64_t t)
{
    int64_t n = t % w->groups, key = t / w->groups * w->block;
    job j = {.key = key, .row = n * GROUP, .g = w->g + n, .p = w->p[t % 2], .scale = w->scale[t % 2]};
    j.strips = ith_div_up(ith_min64(w->block, w->call->keys - key), STRIP);
    j.panels = (const char *)w->call->packed + key / PANEL * w->panel_bytes;
    j.q = w->q + n * w->steps * PAIR_BYTES;
    j.o = o_at(w, n, 0, 0);
    for (int64_t half = 0; half < 2; half++)
        vec_store(j.scale + half * LANES, vec_set(1.0f));
    return j;
}

static fetch next_block(const work *w, const job *j)
{
    const char *end = (const char *)w->call->packed + packed_bytes(w->call->keys, w->D);
    int64_t bytes = w->block / PANEL * w->panel_bytes;
    return fetch_of(end - j->panels > bytes ? j->panels + bytes : end, end, bytes, w->groups * j->strips);
}

/* Strip n of `now` is scored, the strip before it weighed, and once all strips of `before` are weighed, its chunks are
 * added slot by slot. Either may be NULL. */
static void run_slot(work *w, const job *now, const job *before, int64_t n)
{
    int64_t slots = now != NULL ? now->strips : 1, begin = 0, end = w->steps;
    if (slots > 1) {
        begin = w->steps * ith_max64(n - 1, 0) / (slots - 1);
        end = w->steps * n / (slots - 1);
    }
    bool weights_first = slots == 1;
    w->products = now != NULL ? w->steps : 0;
    if (before != NULL && !weights_first)
        w->products += (end - begin) * before->strips;
    w->products = ith_max64(w->products, 1);
    fetch_some(&w->ahead);
    if (now != NULL)
        score_strip(w, now, n, w->logits == w->s[0] ? w->s[1] : w->s[0]);
    else
        store_sums(w);
    while (weights_first && w->unit < w->units)
        weigh_next(w);
    if (before != NULL && begin == 0 && end > 0)
        rescale(w, before);
    for (int64_t chunk = begin; before != NULL && chunk < end; chunk++)
        add_chunk(w, before, chunk);
    while (w->unit < w->units)
        weigh_next(w);
}

static void sweep(work *w)
{
    int64_t jobs = ith_div_up(w->call->keys, w->block) * w->groups;
    job job_of[2];
    w->unstored = w->nowhere;
    w->logits = w->s[0];
    for (int64_t t = 0; t <= jobs && !ith_attn_halted(w->call); t++) {
        job *now = t < jobs ? &job_of[t % 2] : NULL, *before = t > 0 ? &job_of[(t + 1) % 2] : NULL;
        if (now != NULL) {
            *now = job_at(w, t);
            if (t % w->groups == 0)
                w->ahead = next_block(w, now);
        }
        for (int64_t n = 0; n < (now != NULL ? now->strips : 1); n++) {
            run_slot(w, now, before, n);
            w->weighed = now;
            w->n = n;
            w->logits = w->logits == w->s[0] ? w->s[1] : w->s[0];
            w->unit = w->credit = 0;
            w->units = UNITS;
        }
    }
    store_sums(w);
}

static void attend(const ith_attn_call *call)
{
    work w = work_of(call);
    tiles_claim();
    load_queries(&w);
    for (int64_t n = 0; n < w.groups; n++)
        load_group(&w, n);
    sweep(&w);
    for (int64_t n = 0; n < w.groups; n++)
        store_group(&w, n);
    _tile_release();
}

/* Smaller heads fill too little of a tile. */
static bool pays(int64_t head_dim)
{
    return head_dim >= 8;
}

const ith_attn_kernel ith_k_attn_bf16_amx_32x32 = {.name = "bf16_amx",
                                                   .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16 | ITH_CPU_AMX_BF16,
                                                   .logits = {"bf16_amx", 1},
                                                   .outputs = {"bf16_amx", 1},
                                                   .pays = pays,
                                                   .supports = supports,
                                                   .tiles = tiles,
                                                   .packed_bytes = packed_bytes,
                                                   .scratch_bytes = scratch_bytes,
                                                   .pack = pack,
                                                   .attend = attend};
