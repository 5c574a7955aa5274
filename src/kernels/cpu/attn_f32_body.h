/* Partial attention with f32 arithmetic, for any instruction set: the body of cpu/<isa>/attn_f32_<isa>.c, which
 * includes its vec_<isa>.h and sets the tile before it includes this file (see "What the including file defines").
 *
 *     s_ij = c q_i . k_j + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = sum_j p_ij v_j          m_i: attn_pass.h
 *
 * c is multiplied into q when a block of queries is read (in f32: a rounding of 2^-25, next to which the sum over D
 * rounds more), so that s - m is exact at the maximum however large the logits are.
 *
 * Packed. Panels of PANEL keys: flag | b [PANEL] | k transposed [D][PANEL] | v in chunks of TILE_VECS vectors
 * [chunk][PANEL][width]. The last panel is filled up with absent keys (b = -inf, k = v = 0); D is filled up to whole
 * vectors in v.
 *
 * Loops. A run takes its queries over all keys, block_kv_compute of them at a time:
 *     scores   for each panel, for each tile of ROWS queries: a ROWS x PANEL tile of s, summed over D in registers
 *     mask     if there is one, in a loop of its own
 *     weights  for each row: the new maximum (online), p in place of s, l
 *     values   for each chunk of v, for each tile of ROWS queries: a ROWS x width tile of o, summed over the block's
 *              keys in registers, then o = o 2^(m - m') + tile
 * A panel of k, or a block's chunk of v, stays in the first-level cache while every tile of queries passes by.
 *
 * Rows that fill up the last tile of queries are zeros and are computed like the others: a row's arithmetic is the same
 * wherever it stands. */
#include "attn_pass.h"

/* What the including file defines, besides what attn_pass.h asks for:
 *   ROWS, TILE_VECS   the tile in registers: ROWS x TILE_VECS vectors
 *   BLOCK_Q, BLOCK_KEYS   the tiles that serve best */
enum { PANEL = LANES * TILE_VECS };

static ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {BLOCK_Q, 4096, BLOCK_KEYS, PANEL},
                                  .step = {ROWS, PANEL, PANEL, PANEL},
                                  .most = {1024 * ROWS, 65536 * PANEL, 64 * PANEL, PANEL}};
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

/* flag and b. */
static void pack_bias(float *panel, const ith_attn_pack *p, int64_t first)
{
    float *b = panel + ALIGN_FLOATS;
    bool any = false;
    for (int64_t i = 0; i < PANEL; i++) {
        b[i] = key_bias2(p, first + i);
        any = any || !(b[i] == 0.0f);
    }
    panel[0] = any ? 1.0f : 0.0f;
}

static void pack_keys(float *k, const ith_attn_pack *p, int64_t first)
{
    for (int64_t i = 0; i < PANEL; i += LANES) {
        const char *row[LANES];
        for (int64_t r = 0; r < LANES; r++)
            row[r] = key_row(p, p->k, first + i + r);
        for (int64_t d = 0; d < p->head_dim; d += LANES) {
            vec block[LANES];
            for (int64_t r = 0; r < LANES; r++)
                block[r] = load_part(row[r], p->dtype, d, p->head_dim);
            vec_transpose(block);
            for (int64_t c = 0; c < ith_min64(LANES, p->head_dim - d); c++)
                vec_store(k + (d + c) * PANEL + i, block[c]);
        }
    }
}

static void pack_values(float *v, const ith_attn_pack *p, int64_t first)
{
    int64_t D = p->head_dim, padded = padded_dim(D);
    for (int64_t i = 0; i < PANEL; i++) {
        const char *row = key_row(p, p->v, first + i);
        for (int64_t d = 0; d < D; d += LANES) {
            int64_t chunk = d / PANEL * PANEL, width = ith_min64(PANEL, padded - chunk);
            vec_store(v + chunk * PANEL + i * width + (d - chunk), load_part(row, p->dtype, d, D));
        }
    }
}

static void pack(const ith_attn_pack *p)
{
    float *panel = (float *)p->packed + p->first / PANEL * panel_floats(p->head_dim);
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += panel_floats(p->head_dim)) {
        pack_bias(panel, p, first);
        pack_keys((float *)panel_keys(panel), p, first);
        pack_values((float *)panel_values(panel, p->head_dim), p, first);
    }
}

/* ---- Scratch: the queries of a run and their pass ------------------------------------------------------------------
 */

typedef struct work {
    pass t;
    const ith_attn_run *r;
    int64_t D, padded, block;      /* block: keys, block_kv_compute */
    float *q;                      /* [rows / ROWS][D][ROWS], times c */
    const char *ahead, *ahead_end; /* of the next block, what is still to be fetched */
    int64_t ahead_lines;           /* by each tile */
} work;

static int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    int64_t floats = ith_round_up(tiles->block_q * head_dim, ALIGN_FLOATS) +
                     pass_floats(tiles->block_q, padded_dim(head_dim), tiles->block_kv_compute);
    return floats * (int64_t)sizeof(float);
}

static work work_of(const ith_attn_run *r)
{
    work w = {.r = r, .D = r->head_dim, .padded = padded_dim(r->head_dim), .block = r->tiles.block_kv_compute};
    int64_t rows = ith_round_up(r->q_rows, ROWS);
    w.q = r->scratch;
    w.t = pass_in(w.q + ith_round_up(rows * w.D, ALIGN_FLOATS), rows, w.padded, w.block);
    return w;
}

/* The queries transposed by tiles and multiplied by c. */
static void load_queries(work *w)
{
    const ith_attn_run *r = w->r;
    vec c = vec_set(r->scale * (float)M_LOG2E);
    for (int64_t i = 0; i < w->t.rows; i++) {
        const char *row = i < r->q_rows ? r->q[i] : NULL;
        float *q = w->q + i / ROWS * ROWS * w->D + i % ROWS;
        for (int64_t d = 0; d < w->D; d += LANES) {
            float x[LANES];
            vec_store(x, vec_mul(c, load_part(row, r->dtype, d, w->D)));
            for (int64_t e = 0; e < ith_min64(LANES, w->D - d); e++)
                q[(d + e) * ROWS] = x[e];
        }
    }
}

/* ---- The three loops --------------------------------------------------------------------------------------------- */

/* s [ROWS][PANEL] (rows S_STRIDE apart) = q k + b, and its maxima into top [ROWS][LANES]. */
static __attribute__((noinline)) void tile_scores(float *s, int64_t s_stride, float *top, const float *q,
                                                  const float *panel, int64_t D)
{
    const float *k = panel_keys(panel);
    for (int r = 0; r < ROWS; r++)
        for (int n = 0; n < TILE_VECS; n++)
            __builtin_prefetch(s + (ROWS + r) * s_stride + n * LANES, 1); /* where the next tile goes */
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
            vec_store(s + r * s_stride + n * LANES, sum[r][n]);
        }
        vec_store(top + r * LANES, most);
    }
}

/* A tile of o [ROWS][vecs], rows `padded` apart, and what goes into it. */
typedef struct value_tile {
    float *o;
    int64_t padded;
    const float *scale, *p; /* [ROWS]; [ROWS][p_stride] */
    int64_t p_stride;
    const float *v; /* the chunk in the block's first panel; the next panel's is `panel_stride` further on */
    int64_t panel_stride, keys;
} value_tile;

/* o = o scale + p v, over the block's keys. (Both bounds of the inner loops: clang unrolls by the one that it sees
 * before it inlines, and without it keeps the sums in memory.) */
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
                vec weight = vec_set(p[r * p_stride + j]);
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

/* Brings a share of the next block's keys and values nearer, once for each tile of this block. */
static inline void fetch_ahead(work *w)
{
    for (int64_t n = 0; n < w->ahead_lines && w->ahead < w->ahead_end; n++, w->ahead += 64)
        vec_prefetch(w->ahead);
}

static void plan_fetching(work *w, const float *next)
{
    int64_t panels = w->block / PANEL, bytes = panels * panel_floats(w->D) * (int64_t)sizeof(float);
    const char *end = (const char *)w->r->packed + packed_bytes(w->r->keys, w->D);
    w->ahead = (const char *)next;
    w->ahead_end = end - w->ahead < bytes ? end : w->ahead + bytes;
    int64_t tiles = w->t.rows / ROWS * (panels + ith_div_up(w->padded, PANEL));
    w->ahead_lines = ith_div_up(bytes / 64, tiles);
}

static void block_scores(work *w, const float *panel, int64_t panels)
{
    pass *t = &w->t;
    pass_clear_tops(t);
    for (int64_t n = 0; n < panels; n++, panel += panel_floats(w->D))
        for (int64_t i = 0; i < t->rows; i += ROWS) {
            fetch_ahead(w);
            tile_scores(t->s + i * t->s_stride + n * PANEL, t->s_stride, t->top + i * LANES, w->q + i * w->D, panel,
                        w->D);
        }
}

static void block_values(work *w, const float *panel, int64_t keys)
{
    const pass *t = &w->t;
    value_tile tile = {.padded = w->padded, .panel_stride = panel_floats(w->D), .keys = keys};
    tile.v = panel_values(panel, w->D);
    tile.p_stride = t->s_stride;
    for (int64_t d = 0; d < w->padded; d += PANEL, tile.v += PANEL * PANEL) {
        int64_t vecs = ith_min64(TILE_VECS, (w->padded - d) / LANES);
        for (int64_t i = 0; i < t->rows; i += ROWS) {
            fetch_ahead(w);
            tile.o = t->o + i * t->o_stride + d;
            tile.p = t->s + i * t->s_stride;
            tile.scale = t->scale + i;
            tile_values[vecs](&tile);
        }
    }
}

static void run(const ith_attn_run *r)
{
    if (r->q_rows == 0)
        return;
    work w = work_of(r);
    load_queries(&w);
    pass_load_state(&w.t, r);
    const float *panel = r->packed;
    for (int64_t j = 0; j < r->keys; j += w.block) {
        int64_t keys = ith_min64(w.block, r->keys - j), panels = ith_div_up(keys, PANEL);
        const float *next = panel + panels * panel_floats(w.D);
        plan_fetching(&w, next);
        block_scores(&w, panel, panels);
        if (r->mask_kind != ITH_MASK_NONE)
            pass_mask(&w.t, r, j, keys, panels * PANEL);
        if (r->softmax == ITH_SOFTMAX_ONLINE)
            pass_maxima(&w.t);
        pass_weights(&w.t, keys);
        block_values(&w, panel, keys);
        panel = next;
    }
    pass_store(&w.t, r);
}
