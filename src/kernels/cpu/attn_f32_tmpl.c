/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention with f32 arithmetic, for any instruction set: the body of cpu/<isa>/attn_f32_<isa>.c.
 *
 *     s_ij = c q_i . k_j + b_j + mask_ij log2(e),   c = scale log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = sum_j p_ij v_j          m_i: attn_state.h
 *
 * c is multiplied into q when a block of queries is read. This rounds each number of q once more, by 2^-24 of it at
 * most; the sum over D rounds more than that. No factor is applied after the sum, so a running maximum m equals one of
 * the numbers s, and that key has s - m = 0 exactly, however large the logits are.
 *
 * Everything is computed transposed, with queries in the lanes of vectors. Both products then have the same form,
 *
 *     s^T [keys][queries] = k [keys][D] q^T [D][queries],      o^T [D][queries] += v^T [D][keys] p^T [keys][queries].
 *
 * The numbers of the left side are broadcast. The right side has QUERIES columns and stays in the first-level cache.
 * Maxima and sums need no step across lanes.
 *
 * Packed: panels of PANEL keys, each panel head | b [PANEL] | k [PANEL][D] | v^T [D][PANEL]. The panel head has two
 * numbers: whether b has numbers other than 0, and the largest magnitude of v. The last panel is padded with absent
 * keys (b = -inf, k = 0) up to a whole tile; the rest of it is neither written nor read. D in v^T is padded with zeros
 * up to a whole tile. The TILE_ROWS rows of k or v^T that a tile multiplies follow one another in memory, as rows
 * (attn_pack_rows.h) or interleaved (attn_pack_interleaved.h).
 *
 * Loops: for each block of block_kv_compute keys, for each panel of QUERIES queries,
 *     scores          for each TILE_ROWS rows of k: a tile of s, summed over D in registers
 *     mask            applies the mask, if there is one
 *     probabilities   raises the maximum (online), replaces s by p, and adds p to l
 *     values          for each panel of keys, for each TILE_ROWS rows of v^T: a tile of o, summed over the keys in
 *                     registers, then o = o 2^(m - m') + tile
 *
 * Padding queries are zeros and are computed like the others, so that the arithmetic of a row is the same wherever it
 * stands.
 *
 * The including file includes its vec_<isa>.h, a tile_rows (tile_rows.h), attn_f32_layout.h, and attn_pack_rows.h or
 * attn_pack_interleaved.h. It defines EXP2_SHORT if attn_lanes.h needs it. */
/* ---- Packing keys and values ----------------------------------------------------------------------------------- */

static void pack(const ith_attn_pack *p)
{
    float *panel = (float *)p->packed + p->first / PANEL * panel_floats(p->head_dim);
    for (int64_t first = 0; first < p->keys; first += PANEL, panel += panel_floats(p->head_dim)) {
        const int64_t keys = ith_min64(PANEL, p->keys - first), rows = ith_round_up(keys, TILE_ROWS);
        panel[0] = pack_biases(panel + ALIGN_FLOATS, p, first, rows) ? 1.0f : 0.0f;
        pack_keys((float *)panel_keys(panel), p, first, rows);
        panel[1] = pack_values((float *)panel_values(panel, p->head_dim), p, first, keys);
    }
}

/* ---- The tile -------------------------------------------------------------------------------------------------- */

/* The arguments of one tile of a matrix product: sum [TILE_ROWS][width] = from [width] + left [TILE_ROWS][steps] right
 * [steps][width]. For logits (scale is NULL), out = sum + bias, and top is raised to the maxima of out. For outputs,
 * out = out scale + sum. */
typedef struct tile {
    const float *left;
    int64_t left_stride; /* numbers between two rows of left */
    const float *right, *from;
    int64_t steps;
    float *out;         /* [TILE_ROWS][QUERIES]: the tile of logits or outputs */
    const float *bias;  /* [TILE_ROWS]: numbers that are added to the rows of logits; NULL: none */
    float *top;         /* [width]: is raised to the largest logit of each query; NULL for outputs, or if not wanted */
    const float *scale; /* [width]: factors of the old outputs; NULL for logits */
} tile;

static inline __attribute__((always_inline)) void tile_of(const tile *t, const int vecs)
{
    vec sum[TILE_ROWS][TILE_VECS];
    tile_rows(sum, vecs, t->left, t->left_stride, t->right, t->steps, t->from);
    float *out = t->out;
    if (t->scale != NULL) {
        const float *scale = t->scale;
#pragma GCC unroll 16
        for (int n = 0; n < vecs; n++) {
            vec y = vec_load(scale + n * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < TILE_ROWS; r++)
                sum[r][n] = vec_fma(vec_load(out + r * QUERIES + n * LANES), y, sum[r][n]);
        }
    }
    if (t->bias != NULL) {
        const float *bias = t->bias;
#pragma GCC unroll 16
        for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 16
            for (int n = 0; n < vecs; n++)
                sum[r][n] = vec_add(sum[r][n], vec_set(bias[r]));
    }
    if (t->top != NULL) {
        float *top = t->top;
#pragma GCC unroll 16
        for (int n = 0; n < vecs; n++) {
            vec most = vec_load(top + n * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < TILE_ROWS; r++)
                most = vec_max(sum[r][n], most);
            vec_store(top + n * LANES, most);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 16
        for (int n = 0; n < vecs; n++)
            vec_store(out + r * QUERIES + n * LANES, sum[r][n]);
}

/* Tiles of 1, 2 and 3 vectors. They are not inlined, so that the compiler keeps every sum of the tile in a register. */
static __attribute__((noinline)) void tile_1(const tile *t)
{
    tile_of(t, 1);
}

static __attribute__((noinline)) void tile_2(const tile *t)
{
    tile_of(t, 2);
}

static __attribute__((noinline)) void tile_3(const tile *t)
{
    tile_of(t, 3);
}

typedef void tile_function(const tile *t);
static tile_function *const tile_functions[] = {tile_1, tile_2, tile_3};
_Static_assert(sizeof tile_functions / sizeof *tile_functions == TILE_VECS, "one function for each width");

/* ---- Queries --------------------------------------------------------------------------------------------------- */

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
            turn_in(w->q + panel * w->t.D + i - panel, row, call->dtype, d, w->t.D, c);
    }
}

/* ---- A block of keys and a panel of queries, which begins at query i ------------------------------------------- */

/* Plans the prefetch of the block of keys that begins at `next`, spread over the tiles of the current block. */
static fetch fetch_of_next(const work *w, const float *next)
{
    int64_t D = w->t.D, panels = w->block / PANEL, bytes = panels * panel_floats(D) * (int64_t)sizeof(float);
    int64_t tiles = ith_div_up(w->t.rows, QUERIES) * panels * (PANEL + padded_dim(D)) / TILE_ROWS;
    const char *end = (const char *)w->t.call->packed + packed_bytes(w->t.call->keys, D);
    return fetch_of(next, end, bytes, tiles);
}

/* Computes the logits s of the panel of queries from query i on and the first `keys` keys of a packed panel. With the
 * online softmax, raises w->t.top to the maxima. */
static void panel_scores(work *w, const float *panel, int64_t keys, int64_t i, float *s)
{
    int64_t D = w->t.D;
    tile_function *function = tile_functions[lanes_width(&w->t, i) / LANES - 1];
    tile t = {.left_stride = D, .right = w->q + i * D, .from = w->t.from + i, .steps = D};
    t.top = w->t.call->softmax == ITH_SOFTMAX_ONLINE ? w->t.top : NULL;
    for (int64_t j = 0; j < keys; j += TILE_ROWS) {
        t.left = panel_keys(panel) + j * D;
        fetch_some(&w->ahead);
        t.out = s + j * QUERIES;
        t.bias = panel_bias(panel) ? panel_bias(panel) + j : NULL;
        function(&t);
    }
}

/* Replaces the logits s of LANES queries by probabilities, and adds these to l. There are four partial sums, because in
 * one long sum similar terms would all be rounded in the same direction. */
static inline __attribute__((always_inline)) void lane_probabilities(float *s, int64_t keys, float *l, vec m,
                                                                     const exp_kind kind)
{
    vec sum[4] = {vec_set(0.0f), vec_set(0.0f), vec_set(0.0f), vec_set(0.0f)};
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4, s += 4 * QUERIES) {
        vec p[4];
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++)
            p[n] = probability_of(vec_load(s + n * QUERIES), m, kind);
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) {
            vec_store(s + n * QUERIES, p[n]);
            sum[n] = vec_add(sum[n], p[n]);
        }
    }
    for (int n = 0; j < keys; j++, n++, s += QUERIES) {
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
        case F32_ONLINE: lane_probabilities(s, keys, l, m, F32_ONLINE); break;
        case F32_FIXED: lane_probabilities(s, keys, l, m, F32_FIXED); break;
        case SHORT_ONLINE: lane_probabilities(s, keys, l, m, SHORT_ONLINE); break;
        case SHORT_FIXED: lane_probabilities(s, keys, l, m, SHORT_FIXED); break;
        }
    }
}

/* Adds the product p v over one packed panel of keys to the outputs o of the panel of queries from query i on. */
static void panel_sums(work *w, const float *panel, int64_t keys, int64_t i, const float *p)
{
    static const float zeros[QUERIES];
    const bool flushes = panel[1] >= flush_from;
    const unsigned mode = flushes ? vec_flush_begin() : 0;
    int64_t D = w->t.D;
    tile_function *function = tile_functions[lanes_width(&w->t, i) / LANES - 1];
    tile t = {.left_stride = PANEL, .right = p, .from = zeros, .steps = keys, .scale = w->t.scale};
    for (int64_t d = 0; d < D; d += TILE_ROWS) {
        t.left = panel_values(panel, D) + d * PANEL;
        fetch_some(&w->ahead);
        t.out = lanes_o(&w->t, i) + d * QUERIES;
        function(&t);
    }
    if (flushes)
        vec_flush_end(mode);
}

/* Attends with the panel of queries from i on to keys [first, first + keys) of the KV block, at most block_kv_compute
 * of them. */
static void attend_panel(work *w, const float *panel, int64_t first, int64_t keys, int64_t i)
{
    int64_t floats = panel_floats(w->t.D);
    lanes_fill(w->t.top, -INFINITY);
    lanes_fill(w->t.scale, 1.0f);
    for (int64_t j = 0; j < keys; j += PANEL)
        panel_scores(w, panel + j / PANEL * floats, ith_min64(PANEL, keys - j), i, w->s + j * QUERIES);
    if (w->t.call->mask_kind != ITH_MASK_NONE) {
        lanes_mask(&w->t, w->s, QUERIES, first, keys, i);
        lanes_find_top(&w->t, w->s, QUERIES, keys, i);
    }
    const unsigned mode = vec_flush_begin();
    probabilities(w, keys, i);
    vec_flush_end(mode);
    for (int64_t j = 0; j < keys; j += PANEL) {
        panel_sums(w, panel + j / PANEL * floats, ith_min64(PANEL, keys - j), i, w->s + j * QUERIES);
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
