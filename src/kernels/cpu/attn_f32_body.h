/* Partial attention with f32 arithmetic, for any instruction set: the body of cpu/<isa>/attn_f32_<isa>.c, which defines
 * the vector type before it includes this file (see "What the including file defines").
 *
 *     s_ij = c q_i . k_j + b_j,   c = scale log2(e),  b = bias log2(e)      logits in base 2
 *     m_i = max_j s_ij,   p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = sum_j p_ij v_j
 *
 * c is multiplied into q when a block of queries is read (in f32: a rounding of 2^-25, next to which the sum over D
 * rounds more), so that s - m is exact at the maximum however large the logits are.
 *
 * Packed. Panels of PANEL keys: flag | b [PANEL] | k transposed [D][PANEL] | v in chunks of TILE_VECS vectors
 * [chunk][PANEL][width]. The last panel is filled up with absent keys (b = -inf, k = v = 0); D is filled up to whole
 * vectors in v.
 *
 * Loops. A pass takes up to Q_BLOCK queries over all keys, BLOCK_PANELS panels at a time:
 *     scores   for each panel, for each tile of ROWS queries: a ROWS x PANEL tile of s, summed over D in registers
 *     weights  for each row: the new maximum, p in place of s, l
 *     values   for each chunk of v, for each tile of ROWS queries: a ROWS x width tile of o, summed over the block's
 *              keys in registers, then o = o 2^(m - m') + tile
 * A panel of k, or a block's chunk of v, stays in the first-level cache while every tile of queries passes by.
 *
 * Rows that fill up the last tile of queries are zeros and are computed like the others: a row's arithmetic is the same
 * wherever it stands. */
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../kernel.h"

#include <math.h>

/* What the including file defines:
 *   vec                            LANES floats
 *   LANES, ROWS, TILE_VECS         the tile in registers: ROWS x TILE_VECS vectors
 *   Q_BLOCK                        queries a pass, a multiple of ROWS
 *   vec_load, vec_store            64-byte aligned or not
 *   vec_set, vec_fma, vec_add, vec_sub, vec_mul
 *   vec_max(a, b)                  b where a is NaN
 *   vec_exp2(x)                    x <= 0 or NaN; 0 at -inf
 *   vec_hmax, vec_hsum             over the lanes
 *   vec_load_bf16, vec_load_f16    LANES 16-bit numbers as f32
 *   vec_transpose(vec [LANES])     in place */
enum { PANEL = LANES * TILE_VECS, ALIGN_FLOATS = 16 };

static bool supports(ith_dtype dtype, int64_t head_dim)
{
    return head_dim >= 1 && head_dim <= ITH_ATTN_HEAD_DIM_MAX &&
           (dtype == ITH_F32 || dtype == ITH_BF16 || dtype == ITH_F16);
}

/* ---- Packed keys and values -------------------------------------------------------------------------------------- */

/* D filled up to whole vectors. */
static int64_t padded_dim(int64_t D)
{
    return ith_round_up(D, LANES);
}

static int64_t panel_floats(int64_t D)
{
    return ith_round_up(ALIGN_FLOATS + PANEL + PANEL * D + PANEL * padded_dim(D), ALIGN_FLOATS);
}

static const float *panel_bias(const float *panel)
{
    return panel + ALIGN_FLOATS;
}

static const float *panel_keys(const float *panel)
{
    return panel + ALIGN_FLOATS + PANEL;
}

static const float *panel_values(const float *panel, int64_t D)
{
    return panel + ALIGN_FLOATS + PANEL + PANEL * D;
}

static int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    int64_t bytes;
    if (keys > INT64_MAX - PANEL ||
        !ith_size_mul(ith_div_up(keys, PANEL), panel_floats(head_dim) * (int64_t)sizeof(float), &bytes))
        return -1;
    return bytes;
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

/* Row j of an array whose rows are `stride` elements apart, or NULL for a key that is absent. */
static const char *key_row(const ith_attn_pack *p, const void *base, int64_t stride, int64_t j)
{
    if (j >= p->keys || (p->key_bias != NULL && p->key_bias[j] == -INFINITY))
        return NULL;
    return (const char *)base + j * stride * ith_dtype_bytes(p->dtype);
}

/* flag and b. A bias that is finite stays so in base 2. */
static void pack_bias(float *panel, const ith_attn_pack *p, int64_t first)
{
    float *b = panel + ALIGN_FLOATS;
    bool any = false;
    for (int64_t i = 0; i < PANEL; i++) {
        float bias = p->key_bias != NULL && first + i < p->keys ? p->key_bias[first + i] : 0.0f;
        float base2 = bias * (float)M_LOG2E;
        if (isinf(base2) && !isinf(bias))
            base2 = copysignf(FLT_MAX, bias);
        b[i] = first + i < p->keys ? base2 : -INFINITY;
        any = any || !(b[i] == 0.0f);
    }
    panel[0] = any ? 1.0f : 0.0f;
}

static void pack_keys(float *k, const ith_attn_pack *p, int64_t first)
{
    for (int64_t i = 0; i < PANEL; i += LANES) {
        const char *row[LANES];
        for (int64_t r = 0; r < LANES; r++)
            row[r] = key_row(p, p->k, p->k_stride, first + i + r);
        for (int64_t d = 0; d < p->head_dim; d += LANES) {
            int64_t count = ith_min64(LANES, p->head_dim - d);
            vec block[LANES];
            for (int64_t r = 0; r < LANES; r++)
                block[r] = row[r] ? load_some(row[r] + d * ith_dtype_bytes(p->dtype), p->dtype, count) : vec_set(0.0f);
            vec_transpose(block);
            for (int64_t c = 0; c < count; c++)
                vec_store(k + (d + c) * PANEL + i, block[c]);
        }
    }
}

static void pack_values(float *v, const ith_attn_pack *p, int64_t first)
{
    int64_t D = p->head_dim, padded = padded_dim(D);
    for (int64_t i = 0; i < PANEL; i++) {
        const char *row = key_row(p, p->v, p->v_stride, first + i);
        for (int64_t d = 0; d < D; d += LANES) {
            int64_t chunk = d / PANEL * PANEL, width = ith_min64(PANEL, padded - chunk);
            vec x = vec_set(0.0f);
            if (row != NULL)
                x = load_some(row + d * ith_dtype_bytes(p->dtype), p->dtype, ith_min64(LANES, D - d));
            vec_store(v + chunk * PANEL + i * width + (d - chunk), x);
        }
    }
}

static void pack(const ith_attn_pack *p)
{
    float *panel = p->packed;
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += panel_floats(p->head_dim)) {
        pack_bias(panel, p, first);
        pack_keys((float *)panel_keys(panel), p, first);
        pack_values((float *)panel_values(panel, p->head_dim), p, first);
    }
}

/* ---- Scratch: a pass over Q_BLOCK queries ------------------------------------------------------------------------ */

enum { BLOCK_KEYS = BLOCK_PANELS * PANEL, S_STRIDE = BLOCK_KEYS + ALIGN_FLOATS };

typedef struct pass {
    int64_t rows, D, padded;
    float *q;                      /* [Q_BLOCK / ROWS][D][ROWS], times c */
    float *o;                      /* [Q_BLOCK][padded] */
    float *s;                      /* [Q_BLOCK][S_STRIDE]: logits, then weights, of the block's keys */
    float *top;                    /* [Q_BLOCK][LANES]: maxima of the block's logits, lane by lane */
    float *l;                      /* [Q_BLOCK][LANES]: sums, lane by lane */
    float *m;                      /* [Q_BLOCK] */
    float *shift;                  /* [Q_BLOCK]: m, or 0 while it is -inf */
    float *scale;                  /* [Q_BLOCK]: 2^(m - m'), what the block multiplies older sums by */
    const char *ahead, *ahead_end; /* of the next block, what is still to be fetched */
    int64_t ahead_lines;           /* by each tile */
} pass;

static int64_t pass_floats(int64_t D)
{
    return Q_BLOCK * (D + padded_dim(D) + S_STRIDE + 2 * LANES + 3);
}

static int64_t scratch_bytes(int64_t head_dim)
{
    return pass_floats(head_dim) * (int64_t)sizeof(float);
}

static pass pass_in(float *scratch, int64_t rows, int64_t D)
{
    pass t = {.rows = rows, .D = D, .padded = padded_dim(D)};
    t.q = scratch;
    t.o = t.q + Q_BLOCK * D;
    t.s = t.o + Q_BLOCK * t.padded;
    t.top = t.s + Q_BLOCK * S_STRIDE;
    t.l = t.top + Q_BLOCK * LANES;
    t.m = t.l + Q_BLOCK * LANES;
    t.shift = t.m + Q_BLOCK;
    t.scale = t.shift + Q_BLOCK;
    return t;
}

/* The queries from `first` on, transposed by tiles and multiplied by c. */
static void load_queries(pass *t, const ith_attn_run *r, int64_t first)
{
    vec c = vec_set(r->scale * (float)M_LOG2E);
    int64_t rows = ith_round_up(t->rows, ROWS);
    for (int64_t i = 0; i < rows; i++) {
        const char *row = (const char *)r->q + (first + i) * r->q_stride * ith_dtype_bytes(r->dtype);
        float *q = t->q + i / ROWS * ROWS * t->D + i % ROWS;
        for (int64_t d = 0; d < t->D; d += LANES) {
            int64_t count = ith_min64(LANES, t->D - d);
            float x[LANES] = {0};
            if (i < t->rows)
                vec_store(x, vec_mul(c, load_some(row + d * ith_dtype_bytes(r->dtype), r->dtype, count)));
            for (int64_t e = 0; e < count; e++)
                q[(d + e) * ROWS] = x[e];
        }
    }
}

static void load_state(pass *t, const ith_attn_run *r, int64_t first)
{
    int64_t rows = ith_round_up(t->rows, ROWS);
    for (int64_t i = 0; i < rows; i++) {
        bool old = !r->first && i < t->rows;
        t->m[i] = old ? r->m[first + i] : -INFINITY;
        vec_store(t->l + i * LANES, vec_set(0.0f));
        t->l[i * LANES] = old ? r->l[first + i] : 0.0f;
        float *o = t->o + i * t->padded;
        memset(o, 0, (size_t)t->padded * sizeof *o);
        if (old)
            memcpy(o, r->o_sum + (first + i) * t->D, (size_t)t->D * sizeof *o);
    }
}

static void store_state(const pass *t, const ith_attn_run *r, int64_t first)
{
    for (int64_t i = 0; i < t->rows; i++) {
        r->m[first + i] = t->m[i];
        r->l[first + i] = vec_hsum(vec_load(t->l + i * LANES));
        memcpy(r->o_sum + (first + i) * t->D, t->o + i * t->padded, (size_t)t->D * sizeof(float));
    }
}

static void store_output(pass *t, const ith_attn_run *r, int64_t first)
{
    for (int64_t i = 0; i < t->rows; i++) {
        float l = vec_hsum(vec_load(t->l + i * LANES)), *o = t->o + i * t->padded;
        bool empty = l == 0.0f; /* no key but absent ones */
        vec inverse = vec_set(empty ? 0.0f : 1.0f / l);
        for (int64_t d = 0; d < t->padded; d += LANES)
            vec_store(o + d, vec_mul(inverse, vec_load(o + d)));
        ith_from_f32((char *)r->o + (first + i) * r->o_stride * ith_dtype_bytes(r->dtype), r->dtype, o, t->D);
        if (r->lse != NULL)
            r->lse[first + i] = empty ? -INFINITY : (t->m[i] + log2f(l)) * (float)M_LN2;
    }
}

/* ---- The three loops --------------------------------------------------------------------------------------------- */

/* s [ROWS][PANEL] (rows S_STRIDE apart) = q k + b, and its maxima into top [ROWS][LANES]. */
static __attribute__((noinline)) void tile_scores(float *s, float *top, const float *q, const float *panel, int64_t D)
{
    const float *k = panel_keys(panel);
    for (int r = 0; r < ROWS; r++)
        for (int n = 0; n < TILE_VECS; n++)
            __builtin_prefetch(s + (ROWS + r) * S_STRIDE + n * LANES, 1); /* where the next tile goes */
    vec sum[ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS; n++)
            sum[r][n] = vec_set(0.0f);
    for (int64_t d = 0; d < D; d++, q += ROWS, k += PANEL) {
        __builtin_prefetch(q + ROWS * D); /* the next tile's */
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
    if (panel[0] != 0.0f) {
        const float *b = panel_bias(panel);
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
            vec_store(s + r * S_STRIDE + n * LANES, sum[r][n]);
        }
        vec_store(top + r * LANES, most);
    }
}

/* A tile of o [ROWS][vecs], rows `padded` apart, and what goes into it. */
typedef struct value_tile {
    float *o;
    int64_t padded;
    const float *scale, *p; /* [ROWS]; [ROWS][S_STRIDE] */
    const float *v;         /* the chunk in the block's first panel; the next panel's is `panel_stride` further on */
    int64_t panel_stride, keys;
} value_tile;

/* o = o scale + p v, over the block's keys. (Both bounds of the inner loops: clang unrolls by the one that it sees
 * before it inlines, and without it keeps the sums in memory.) */
static inline __attribute__((always_inline)) void tile_values_of(const value_tile *t, const int vecs)
{
    const float *p = t->p, *v = t->v;
    vec sum[ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++)
            sum[r][n] = vec_set(0.0f);
    for (int64_t keys = t->keys; keys > 0; keys -= PANEL, v += t->panel_stride, p += PANEL) {
        const float *x = v;
        int64_t here = ith_min64(keys, PANEL);
        for (int64_t j = 0; j < here; j++, x += vecs * LANES) {
            vec value[TILE_VECS];
#pragma GCC unroll 16
            for (int n = 0; n < TILE_VECS && n < vecs; n++)
                value[n] = vec_load(x + n * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                vec weight = vec_set(p[r * S_STRIDE + j]);
#pragma GCC unroll 16
                for (int n = 0; n < TILE_VECS && n < vecs; n++)
                    sum[r][n] = vec_fma(value[n], weight, sum[r][n]);
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

/* One function for each width, not inlined, like tile_scores: the registers are given out for the tile alone. */
static __attribute__((noinline)) void tile_values_1(const value_tile *t)
{
    tile_values_of(t, 1);
}

static __attribute__((noinline)) void tile_values_2(const value_tile *t)
{
    tile_values_of(t, 2);
}

#if TILE_VECS > 2
static __attribute__((noinline)) void tile_values_3(const value_tile *t)
{
    tile_values_of(t, 3);
}

static __attribute__((noinline)) void tile_values_4(const value_tile *t)
{
    tile_values_of(t, 4);
}
#endif

static void (*const tile_values[TILE_VECS + 1])(const value_tile *t) = {
    NULL,          tile_values_1, tile_values_2,
#if TILE_VECS > 2
    tile_values_3, tile_values_4,
#endif
};

/* The new maximum of every row, and what its older sums are multiplied by. */
static void block_maxima(pass *t)
{
    for (int64_t i = 0; i < t->rows; i++) {
        float top = vec_hmax(vec_load(t->top + i * LANES)), old = t->m[i];
        float m = top > old ? top : old;
        float shift = m == -INFINITY ? 0.0f : m; /* all absent so far: 2^(-inf - 0) = 0 */
        t->m[i] = m;
        t->shift[i] = shift;
        t->scale[i] = vec_first(vec_exp2(vec_set(old - shift)));
    }
}

/* p in place of s, and l. */
static __attribute__((noinline)) void row_weights(float *s, float *l, float scale, float shift, int64_t keys)
{
    vec x = vec_set(shift), sum = vec_mul(vec_set(scale), vec_load(l));
    for (int64_t j = 0; j < keys; j += LANES) {
        vec p = vec_exp2(vec_sub(vec_load(s + j), x));
        vec_store(s + j, p);
        sum = vec_add(sum, p);
    }
    vec_store(l, sum);
}

static void block_weights(pass *t, int64_t keys)
{
    for (int64_t i = 0; i < t->rows; i++)
        row_weights(t->s + i * S_STRIDE, t->l + i * LANES, t->scale[i], t->shift[i], keys);
}

/* Brings a share of the next block's keys and values nearer, once for each tile of this block. */
static inline void fetch_ahead(pass *t)
{
    for (int64_t n = 0; n < t->ahead_lines && t->ahead < t->ahead_end; n++, t->ahead += 64)
        vec_prefetch(t->ahead);
}

static void plan_fetching(pass *t, const ith_attn_run *r, const float *next)
{
    const char *end = (const char *)r->packed + packed_bytes(r->keys, t->D);
    int64_t bytes = BLOCK_PANELS * panel_floats(t->D) * (int64_t)sizeof(float);
    t->ahead = (const char *)next;
    t->ahead_end = end - t->ahead < bytes ? end : t->ahead + bytes;
    int64_t tiles = t->rows / ROWS * (BLOCK_PANELS + ith_div_up(t->padded, PANEL));
    t->ahead_lines = ith_div_up(bytes / 64, tiles);
}

static void block_scores(pass *t, const float *panel, int64_t panels)
{
    for (int64_t i = 0; i < t->rows; i++)
        vec_store(t->top + i * LANES, vec_set(-INFINITY));
    for (int64_t n = 0; n < panels; n++, panel += panel_floats(t->D))
        for (int64_t i = 0; i < t->rows; i += ROWS) {
            fetch_ahead(t);
            tile_scores(t->s + i * S_STRIDE + n * PANEL, t->top + i * LANES, t->q + i * t->D, panel, t->D);
        }
}

static void block_values(pass *t, const float *panel, int64_t keys)
{
    value_tile tile = {.padded = t->padded, .panel_stride = panel_floats(t->D), .keys = keys};
    tile.v = panel_values(panel, t->D);
    for (int64_t d = 0; d < t->padded; d += PANEL, tile.v += PANEL * PANEL) {
        int64_t vecs = ith_min64(TILE_VECS, (t->padded - d) / LANES);
        for (int64_t i = 0; i < t->rows; i += ROWS) {
            fetch_ahead(t);
            tile.o = t->o + i * t->padded + d;
            tile.p = t->s + i * S_STRIDE;
            tile.scale = t->scale + i;
            tile_values[vecs](&tile);
        }
    }
}

static void run_pass(const ith_attn_run *r, int64_t first, int64_t rows)
{
    pass t = pass_in(r->scratch, rows, r->head_dim);
    load_queries(&t, r, first);
    load_state(&t, r, first);
    t.rows = ith_round_up(rows, ROWS);
    const float *panel = r->packed;
    for (int64_t j = 0; j < r->keys; j += BLOCK_KEYS, panel += BLOCK_PANELS * panel_floats(t.D)) {
        int64_t keys = ith_min64(BLOCK_KEYS, r->keys - j);
        plan_fetching(&t, r, panel + BLOCK_PANELS * panel_floats(t.D));
        block_scores(&t, panel, ith_div_up(keys, PANEL));
        block_maxima(&t);
        block_weights(&t, keys);
        block_values(&t, panel, keys);
    }
    t.rows = rows;
    if (r->last)
        store_output(&t, r, first);
    else
        store_state(&t, r, first);
}

static void run(const ith_attn_run *r)
{
    for (int64_t i = 0; i < r->q_rows; i += Q_BLOCK)
        run_pass(r, i, ith_min64(Q_BLOCK, r->q_rows - i));
}
