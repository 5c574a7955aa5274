/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention with f32 arithmetic, for any instruction set: the body of cpu/<isa>/attn_f32_<isa>.c.
 *
 *     s_ij = c q_i . k_j + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = sum_j p_ij v_j          m_i: attn_state.h
 *
 * c is multiplied into q when a block of queries is read. (That is a rounding of 2^-25 in f32; the sum over D rounds
 * more.) So s - m is exact at the maximum, however large the logits are.
 *
 * Everything is computed transposed, with queries in the lanes of vectors. Both products then have the same form,
 *
 *     s^T [keys][queries] = k [keys][D] q^T [D][queries],      o^T [D][queries] += v^T [D][keys] p^T [keys][queries].
 *
 * The left side streams past in the order in which it is packed, and its numbers are broadcast. The right side has
 * QUERIES columns and stays in the first-level cache. Maxima and sums need no step across lanes.
 *
 * Packed: panels of PANEL keys, each flag | b [PANEL] | k | v, where the flag says whether b has numbers other than 0.
 * Within a panel, the rows of k and the columns of v stand in micro-panels of ROWS or LESS rows or columns, their
 * height (see `split`): [D][height] for k, [PANEL][height] for v. The last panel is padded with absent keys (b = -inf,
 * k = v = 0), D with columns of zeros.
 *
 * Loops: for each block of block_kv_compute keys, for each panel of QUERIES queries,
 *     scores          for each micro-panel of k: a tile of s, summed over D in registers
 *     mask            applies the mask, if there is one
 *     probabilities   raises the maximum (online), replaces s by p, and adds p to l
 *     values          for each panel of keys, for each micro-panel of v: a tile of o, summed over the keys in
 *                     registers, then o = o 2^(m - m') + tile
 *
 * Padding queries are zeros and are computed like the others, so that the arithmetic of a row is the same wherever it
 * stands.
 *
 * The including file includes its vec_<isa>.h and defines, besides what attn_lanes.h needs,
 *   ROWS, TILE_VECS   the tile in registers: ROWS x TILE_VECS vectors, ROWS = 6, QUERIES = LANES * TILE_VECS
 *   BLOCK_Q           the best number of queries of a block */
#include "attn_fetch.h"
#include "attn_lanes.h"

enum {
    /* A micro-panel holds ROWS rows of k (or columns of v), or this many where ROWS would leave more padding. */
    LESS = 4,
    /* Number of keys in a packed panel. */
    PANEL = 128,
    /* Packing prefetches a key while it reads the key that comes this many rows earlier. */
    ROWS_AHEAD = 2 * ROWS,
    WRITE_AHEAD = 1024 /* packing prefetches the memory that it writes this many floats ahead */
};
_Static_assert(ROWS == 6, "split is made for heights of 6 and 4");

static bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return attn_takes(dtype, head_dim, softmax);
}

static ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {BLOCK_Q, 128 * PANEL, PANEL, PANEL},
                                  .step = {QUERIES, PANEL, PANEL, PANEL},
                                  .most = {128 * QUERIES, 65536 * PANEL, 64 * PANEL, PANEL}};
}

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

/* The division of the rows of k, or the columns of v, into micro-panels: first micro-panels of ROWS, then of LESS rows
 * or columns. The last micro-panel may be padded. */
typedef struct micro_panels {
    int64_t tall, all; /* number of micro-panels of ROWS rows or columns; number of all micro-panels */
} micro_panels;

static micro_panels split(int64_t count)
{
    int64_t tall = count / ROWS, rest = count % ROWS;
    if (rest == 0)
        return (micro_panels){tall, tall};
    if (rest > LESS)
        return (micro_panels){tall + 1, tall + 1};
    if (ROWS + rest <= 2 * LESS && tall > 0)
        return (micro_panels){tall - 1, tall + 1};
    return (micro_panels){tall, tall + 1};
}

static int64_t height_of(const micro_panels *g, int64_t n)
{
    return n < g->tall ? ROWS : LESS;
}

static int64_t start_of(const micro_panels *g, int64_t n)
{
    return n < g->tall ? n * ROWS : g->tall * ROWS + (n - g->tall) * LESS;
}

/* The head size D, rounded up to whole micro-panels. */
static int64_t padded_dim(int64_t D)
{
    micro_panels g = split(D);
    return start_of(&g, g.all);
}

static int64_t panel_floats(int64_t D)
{
    return ith_round_up(ALIGN_FLOATS + PANEL + PANEL * D + PANEL * padded_dim(D) + LANES, ALIGN_FLOATS);
}

static const float *panel_bias(const float *panel)
{
    return panel[0] != 0.0f ? panel + ALIGN_FLOATS : NULL;
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
    return packed_panels(keys, PANEL, panel_floats(head_dim) * (int64_t)sizeof(float));
}

/* Packs the keys of a panel, transposed, into micro-panels. Each store writes a full vector and may write beyond its
 * micro-panel. Stores go in the order of addresses, so the next one overwrites the excess. The excess of the last
 * micro-panel of keys falls into the values, which are packed afterwards, and the excess of the values falls into
 * padding. */
static void pack_keys(float *k, const ith_attn_pack *p, int64_t first)
{
    micro_panels g = split(PANEL);
    int64_t D = p->head_dim;
    for (int64_t n = 0; n < g.all; n++) {
        int64_t start = start_of(&g, n), height = height_of(&g, n);
        for (int64_t r = 0; r < height; r++) {
            fetch_row(p, p->k, first + start + r + ROWS_AHEAD);
            fetch_row(p, p->v, first + start + r);
        }
        for (int64_t d = 0; d < D; d += LANES) {
            vec x[LANES];
            for (int64_t r = 0; r < LANES; r++)
                x[r] = r < height ? load_part(key_row(p, p->k, first + start + r), p->dtype, d, D) : vec_set(0.0f);
            vec_transpose(x);
            for (int64_t e = 0; e < ith_min64(LANES, D - d); e++) {
                float *at = k + start * D + (d + e) * height;
                __builtin_prefetch(at + WRITE_AHEAD, 1);
                vec_store(at, x[e]);
            }
        }
    }
}

static void pack_values(float *v, const ith_attn_pack *p, int64_t first)
{
    micro_panels g = split(p->head_dim);
    const char *row[PANEL];
    for (int64_t i = 0; i < PANEL; i++)
        row[i] = key_row(p, p->v, first + i);
    for (int64_t n = 0; n < g.all; n++) {
        int64_t start = start_of(&g, n), height = height_of(&g, n);
        for (int64_t i = 0; i < PANEL; i++) {
            float *at = v + start * PANEL + i * height;
            __builtin_prefetch(at + WRITE_AHEAD, 1);
            vec_store(at, load_part(row[i], p->dtype, start, p->head_dim));
        }
    }
}

static void pack(const ith_attn_pack *p)
{
    float *panel = (float *)p->packed + p->first / PANEL * panel_floats(p->head_dim);
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += panel_floats(p->head_dim)) {
        panel[0] = pack_biases(panel + ALIGN_FLOATS, p, first, PANEL) ? 1.0f : 0.0f;
        pack_keys((float *)panel_keys(panel), p, first);
        pack_values((float *)panel_values(panel, p->head_dim), p, first);
    }
}

/* ---- The tile -------------------------------------------------------------------------------------------------- */

/* The arguments of one tile of a matrix product, with h rows and `width` columns: sum [h][width] = from [width] +
 * transpose(a [steps][h]) b [steps][width]. For logits (scale is NULL), out = sum + bias, and top is raised to the
 * maxima of out. For outputs, out = out scale + sum. */
typedef struct tile {
    const float *a, *b, *from;
    int64_t steps;
    float *out;         /* [h rows][width columns]: the tile of logits or outputs */
    const float *bias;  /* [h rows]: numbers that are added to the rows of logits; NULL: none */
    float *top;         /* [width columns]: the largest logit of each; NULL: not wanted */
    const float *scale; /* [width columns]: factors of the old outputs; NULL for logits */
} tile;

static inline __attribute__((always_inline)) void tile_of(const tile *t, const int rows, const int vecs)
{
    const float *a = t->a, *b = t->b, *from = t->from, *end = b + t->steps * vecs * LANES;
    vec sum[ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS && r < rows; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++)
            sum[r][n] = vec_load(from + n * LANES);
    for (; b < end; a += rows, b += vecs * LANES) {
        vec x[TILE_VECS];
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++)
            x[n] = vec_load(b + n * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS && r < rows; r++) {
            vec y = vec_set(a[r]);
#pragma GCC unroll 16
            for (int n = 0; n < TILE_VECS && n < vecs; n++)
                sum[r][n] = vec_fma(x[n], y, sum[r][n]);
        }
    }
    float *out = t->out;
    if (t->scale != NULL) {
        const float *scale = t->scale;
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++) {
            vec y = vec_load(scale + n * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS && r < rows; r++)
                sum[r][n] = vec_fma(vec_load(out + (r * vecs + n) * LANES), y, sum[r][n]);
        }
    }
    if (t->bias != NULL) {
        const float *bias = t->bias;
#pragma GCC unroll 16
        for (int r = 0; r < ROWS && r < rows; r++)
#pragma GCC unroll 16
            for (int n = 0; n < TILE_VECS && n < vecs; n++)
                sum[r][n] = vec_add(sum[r][n], vec_set(bias[r]));
    }
    if (t->top != NULL) {
        float *top = t->top;
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++) {
            vec most = vec_load(top + n * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS && r < rows; r++)
                most = vec_max(sum[r][n], most);
            vec_store(top + n * LANES, most);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS && r < rows; r++)
#pragma GCC unroll 16
        for (int n = 0; n < TILE_VECS && n < vecs; n++)
            vec_store(out + (r * vecs + n) * LANES, sum[r][n]);
}

/* Defines tile_<rows>x<vecs>, which computes a tile of `rows` rows of `vecs` vectors. It is not inlined, so that the
 * compiler keeps every sum of the tile in a register. */
#define TILE_FUNCTION(rows, vecs)                                                                                      \
    static __attribute__((noinline)) void tile_##rows##x##vecs(const tile *t)                                          \
    {                                                                                                                  \
        tile_of(t, rows, vecs);                                                                                        \
    }
TILE_FUNCTION(6, 1)
TILE_FUNCTION(4, 1)
TILE_FUNCTION(6, 2)
TILE_FUNCTION(4, 2)
#if TILE_VECS > 2
TILE_FUNCTION(6, 3)
TILE_FUNCTION(4, 3)
TILE_FUNCTION(6, 4)
TILE_FUNCTION(4, 4)
#endif

typedef void tile_function(const tile *t);
static tile_function *const tile_functions[TILE_VECS][2] = {
    {tile_6x1, tile_4x1},
    {tile_6x2, tile_4x2},
#if TILE_VECS > 2
    {tile_6x3, tile_4x3},
    {tile_6x4, tile_4x4},
#endif
};

/* ---- Scratch --------------------------------------------------------------------------------------------------- */

/* The scratch memory of one call. */
typedef struct work {
    query_lanes t;
    int64_t block; /* number of keys computed at a time (block_kv_compute) */
    float *q;      /* queries times c = scale log2(e), in panels [D][width] of `width` queries each */
    float *s;      /* [block][width]: logits, then probabilities, of one panel of queries */
    fetch ahead;   /* prefetch of the next block of keys */
} work;

static work lay_out(ith_arena *arena, int64_t rows, int64_t D, int64_t block)
{
    work w = {.block = block};
    rows = ith_round_up(rows, LANES);
    w.s = ith_arena_take(arena, QUERIES * (int64_t)sizeof *w.s, block);
    w.q = ith_arena_take(arena, rows, D * (int64_t)sizeof *w.q);
    w.t = lanes_lay_out(arena, rows, D, padded_dim(D));
    return w;
}

static int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    ith_arena arena = {0};
    lay_out(&arena, tiles->block_q, head_dim, tiles->block_kv_compute);
    return arena.used_bytes;
}

static void load_queries(work *w)
{
    const ith_attn_call *call = w->t.call;
    vec c = vec_set(call->scale * (float)M_LOG2E);
    for (int64_t i = 0; i < w->t.rows; i += LANES) {
        int64_t panel = i / QUERIES * QUERIES;
        const char *row[LANES];
        for (int64_t n = 0; n < LANES; n++)
            row[n] = i + n < call->q_rows ? call->q[i + n] : NULL;
        for (int64_t d = 0; d < w->t.D; d += LANES)
            turn_in(w->q + panel * w->t.D + i - panel, lanes_width(&w->t, panel), row, call->dtype, d, w->t.D, c);
    }
}

/* ---- A block of keys and a panel of queries, which begins at query i ------------------------------------------- */

/* Plans the prefetch of the block of keys that begins at `next`, spread over the tiles of the current block. */
static fetch fetch_of_next(const work *w, const float *next)
{
    int64_t D = w->t.D, panels = w->block / PANEL, bytes = panels * panel_floats(D) * (int64_t)sizeof(float);
    int64_t tiles = ith_div_up(w->t.rows, QUERIES) * panels * (split(PANEL).all + split(D).all);
    const char *end = (const char *)w->t.call->packed + packed_bytes(w->t.call->keys, D);
    return fetch_of(next, end, bytes, tiles);
}

/* Computes the logits s of the panel of queries from query i on and the first `keys` keys of a packed panel. With the
 * online softmax, raises w->t.top to the maxima. */
static void panel_scores(work *w, const float *panel, int64_t keys, int64_t i, float *s)
{
    int64_t width = lanes_width(&w->t, i), D = w->t.D;
    tile_function *const *function = tile_functions[width / LANES - 1];
    micro_panels g = split(PANEL);
    tile t = {.b = w->q + i * D, .from = w->t.from + i, .steps = D};
    t.top = w->t.call->softmax == ITH_SOFTMAX_ONLINE ? w->t.top : NULL;
    for (int64_t n = 0; n < g.all && start_of(&g, n) < keys; n++) {
        int64_t start = start_of(&g, n);
        fetch_some(&w->ahead);
        t.a = panel_keys(panel) + start * D;
        t.out = s + start * width;
        t.bias = panel_bias(panel) ? panel_bias(panel) + start : NULL;
        function[n >= g.tall](&t);
    }
}

/* Replaces the logits s of LANES queries by probabilities, and adds these to l. There are four partial sums, because in
 * one long sum similar terms would all be rounded in the same direction. */
static inline __attribute__((always_inline)) void lane_probabilities(float *s, int64_t width, int64_t keys, float *l,
                                                                     vec m, const exp_kind kind)
{
    vec sum[4] = {vec_set(0.0f), vec_set(0.0f), vec_set(0.0f), vec_set(0.0f)};
    for (int64_t j = 0; j < keys; j += 4)
#pragma GCC unroll 4
        for (int64_t n = 0; n < 4; n++, s += width) {
            if (j + n >= keys)
                break;
            vec p = probability_of(vec_load(s), m, kind);
            vec_store(s, p);
            sum[n] = vec_add(sum[n], p);
        }
    vec_store(l, vec_add(vec_load(l), vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3]))));
}

static __attribute__((noinline)) void probabilities(work *w, int64_t keys, int64_t i)
{
    int64_t width = lanes_width(&w->t, i);
    lanes_raise_maxima(&w->t, i);
    for (int64_t n = 0; n < width; n += LANES) {
        float *s = w->s + n, *l = w->t.l + i + n;
        vec m = vec_load(w->t.shift + i + n);
        switch (w->t.kind) {
        case F32_ONLINE: lane_probabilities(s, width, keys, l, m, F32_ONLINE); break;
        case F32_FIXED: lane_probabilities(s, width, keys, l, m, F32_FIXED); break;
        case SHORT_ONLINE: lane_probabilities(s, width, keys, l, m, SHORT_ONLINE); break;
        case SHORT_FIXED: lane_probabilities(s, width, keys, l, m, SHORT_FIXED); break;
        }
    }
}

/* Adds the product p v over one packed panel of keys to the outputs o of the panel of queries from query i on. */
static void panel_sums(work *w, const float *panel, int64_t keys, int64_t i, const float *p)
{
    static const float zeros[QUERIES];
    int64_t width = lanes_width(&w->t, i), D = w->t.D;
    tile_function *const *function = tile_functions[width / LANES - 1];
    micro_panels g = split(D);
    tile t = {.b = p, .from = zeros, .steps = keys, .scale = w->t.scale};
    for (int64_t n = 0; n < g.all; n++) {
        int64_t start = start_of(&g, n);
        fetch_some(&w->ahead);
        t.a = panel_values(panel, D) + start * PANEL;
        t.out = lanes_o(&w->t, i) + start * width;
        function[n >= g.tall](&t);
    }
}

/* Attends with the panel of queries from i on to keys [first, first + keys) of the KV block, at most block_kv_compute
 * of them. */
static void attend_panel(work *w, const float *panel, int64_t first, int64_t keys, int64_t i)
{
    int64_t width = lanes_width(&w->t, i), floats = panel_floats(w->t.D);
    lanes_fill(w->t.top, -INFINITY);
    lanes_fill(w->t.scale, 1.0f);
    for (int64_t j = 0; j < keys; j += PANEL)
        panel_scores(w, panel + j / PANEL * floats, ith_min64(PANEL, keys - j), i, w->s + j * width);
    if (w->t.call->mask_kind != ITH_MASK_NONE) {
        lanes_mask(&w->t, w->s, width, first, keys, i);
        lanes_find_top(&w->t, w->s, width, keys, i);
    }
    probabilities(w, keys, i);
    for (int64_t j = 0; j < keys; j += PANEL) {
        panel_sums(w, panel + j / PANEL * floats, ith_min64(PANEL, keys - j), i, w->s + j * width);
        lanes_fill(w->t.scale, 1.0f); /* o is multiplied by 2^(m - m') only once, with the first panel */
    }
}

static void attend(const ith_attn_call *call)
{
    ith_arena arena = {.base = call->scratch};
    work w = lay_out(&arena, call->q_rows, call->head_dim, call->tiles.block_kv_compute);
    w.t.call = call;
    load_queries(&w);
    lanes_load(&w.t);
    const float *panel = call->packed;
    for (int64_t j = 0; j < call->keys && call->q_rows > 0; j += w.block) {
        int64_t keys = ith_min64(w.block, call->keys - j);
        const float *next = panel + ith_div_up(keys, PANEL) * panel_floats(w.t.D);
        w.ahead = fetch_of_next(&w, next);
        for (int64_t i = 0; i < w.t.rows && !ith_attn_halted(call); i += QUERIES)
            attend_panel(&w, panel, j, keys, i);
        panel = next;
    }
    lanes_store(&w.t);
}
