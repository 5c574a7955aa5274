/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of bf16 tensors whose two products are oneDNN's, which on a server with AMX runs them on it.
 *
 *     x_ij = q_i . k_j,   s_ij = c x_ij + b_j + mask_ij log2(e),   c = |scale| log2(e),  b = bias log2(e)
 *     p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,   o_i = l_i / l'_i sum_j p'_ij v_j       m_i: attn_pass.h
 *
 * with p' the weights rounded to bf16 and l' their sum: the value of a lone key comes out as it went in.
 *
 * A negative scale turns the sign of q, which is exact. c is applied in f32 once the dot product is there.
 *
 * Packed. Blocks of BLOCK keys, the last of a run as long as its keys rounded up to PANEL: flag | b [keys], f32 | k in
 * panels [keys / PANEL][K / 32][16][PANEL][2] | v in chunks [V / width][keys / 32][16][width][2], with D rounded up to
 * 32 in K = V. Two bf16 side by side are neighbours along D in k, neighbouring keys in v. What fills up is absent keys
 * (b = -inf, k = v = 0) and zeros.
 *
 * Loops. A run takes its queries over all keys, a block at a time; within it ROWS queries at a time:
 *     products   x [ROWS][keys] = q k
 *     weights    the new maximum (online), p', l, l'
 *     products   o = o 2^(m - m') + p' v
 * always of whole tiles of ROWS queries, zeros where there is none: a row's arithmetic is the same wherever it stands.
 *
 * The products of a head size are made when `supports` is first asked about it, and stay. oneDNN fails to run one only
 * where it gets no memory for a few hundred bytes of its own; the rows are NaN then. */
#include "attn_bf16_onednn.h"

#include "../cpu/avx512/exp2_short_avx512.h"
#include "../cpu/avx512_bf16/weights_bf16_avx512.h"

#include "../cpu/attn_pass.h"
#include "onednn_product.h"

#include <pthread.h>

enum {
    ROWS = 64,
    PANEL = 64,
    BLOCK = 256,
    STEP = 32,               /* what D is filled up to */
    LENGTHS = BLOCK / PANEL, /* of blocks */
    HEAD_DIM_MOST = 512,
    SIZES = HEAD_DIM_MOST / STEP,
};

static int64_t padded_dim(int64_t D)
{
    return ith_round_up(D, STEP);
}

/* Columns of a chunk of v. */
static int64_t chunk_width(int64_t D)
{
    return padded_dim(D) % 64 == 0 ? 64 : 32;
}

/* ---- The products of a head size ------------------------------------------------------------------------------- */

typedef struct products {
    bool tried, made;
    onednn_product scores[LENGTHS], values[LENGTHS]; /* for blocks of PANEL, 2 PANEL, ... keys */
    int64_t scratch_bytes;                           /* the most that one of them needs */
} products;

static products sizes[SIZES]; /* of head_dim up to STEP, 2 STEP, ... */

static void make_products(products *of, int64_t padded)
{
    of->tried = of->made = true;
    for (int i = 0; i < LENGTHS && of->made; i++) {
        int64_t keys = (i + 1) * PANEL;
        onednn_shape score = {.rows = ROWS, .in = padded, .out = keys, .width = PANEL};
        onednn_shape value = {.rows = ROWS, .in = keys, .out = padded, .width = chunk_width(padded), .adds = true};
        of->made = onednn_product_make(&score, &of->scores[i]) && onednn_product_make(&value, &of->values[i]);
        of->scratch_bytes = ith_max64(of->scratch_bytes, of->scores[i].scratch_bytes);
        of->scratch_bytes = ith_max64(of->scratch_bytes, of->values[i].scratch_bytes);
    }
    for (int i = 0; i < LENGTHS && !of->made; i++) {
        onednn_product_free(&of->scores[i]);
        onednn_product_free(&of->values[i]);
    }
}

/* Those of a head size; NULL where oneDNN has none. */
static const products *products_of(int64_t head_dim)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (head_dim < 1 || head_dim > HEAD_DIM_MOST)
        return NULL;
    products *of = &sizes[(head_dim - 1) / STEP];
    pthread_mutex_lock(&lock);
    if (!of->tried)
        make_products(of, padded_dim(head_dim));
    pthread_mutex_unlock(&lock);
    return of->made ? of : NULL;
}

static bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return dtype == ITH_BF16 && attn_takes(dtype, head_dim, softmax) && products_of(head_dim) != NULL;
}

static ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {4 * ROWS, 16 * BLOCK, BLOCK, BLOCK},
                                  .step = {ROWS, BLOCK, BLOCK, BLOCK},
                                  .most = {64 * ROWS, 65536 * BLOCK, BLOCK, BLOCK}};
}

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

/* Where a block of `keys` (rounded up) has its parts. Words are pairs of bf16. */
typedef struct block {
    float *flag, *b;
    uint32_t *k, *v;
    int64_t keys, bytes;
} block;

static block block_at(const void *packed, int64_t keys, int64_t D)
{
    block at = {.flag = (float *)packed, .keys = ith_round_up(ith_min64(keys, BLOCK), PANEL)};
    int64_t words = at.keys * padded_dim(D) / 2;
    at.b = at.flag + ALIGN_FLOATS;
    at.k = (uint32_t *)(at.b + at.keys);
    at.v = at.k + words;
    at.bytes = (ALIGN_FLOATS + at.keys + 2 * words) * (int64_t)sizeof(float);
    return at;
}

static int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    int64_t bytes, rest = keys % BLOCK;
    int64_t last = rest > 0 ? block_at(NULL, rest, head_dim).bytes : 0;
    if (!ith_size_mul(keys / BLOCK, block_at(NULL, BLOCK, head_dim).bytes, &bytes) || bytes > INT64_MAX - last)
        return -1;
    return bytes + last;
}

/* LANES pairs of a row of D from element d on, zeros behind its end; of an absent row zeros. */
static inline vec load_pairs(const char *row, int64_t d, int64_t D)
{
    uint16_t some[2 * LANES] = {0};
    if (row == NULL)
        return vec_set(0.0f);
    if (D - d >= 2 * LANES)
        return vec_load((const float *)(row + 2 * d));
    memcpy(some, row + 2 * d, (size_t)(D - d) * sizeof *some);
    return vec_load((const float *)some);
}

/* Pairs along D, LANES keys of them transposed at a time. */
static void pack_keys(const block *at, const ith_attn_pack *p, int64_t first)
{
    for (int64_t i = 0; i < at->keys; i += LANES) {
        const char *row[LANES];
        uint32_t *k = at->k + i / PANEL * PANEL * padded_dim(p->head_dim) / 2 + i % PANEL;
        for (int64_t r = 0; r < LANES; r++)
            row[r] = key_row(p, p->k, first + i + r);
        for (int64_t d = 0; d < p->head_dim; d += 2 * LANES) {
            vec pairs[LANES];
            for (int64_t r = 0; r < LANES; r++)
                pairs[r] = load_pairs(row[r], d, p->head_dim);
            vec_transpose(pairs);
            for (int64_t r = 0; r < LANES; r++)
                vec_store((float *)(k + (d / 2 + r) * PANEL), pairs[r]);
        }
    }
}

/* `count` pairs of two rows, zeros up to `width`; absent rows are zeros. */
static void pair_rows(uint32_t *restrict to, const uint16_t *even, const uint16_t *odd, int64_t count, int64_t width)
{
    for (int64_t d = 0; d < count; d++)
        to[d] = (even ? even[d] : 0u) | (uint32_t)(odd ? odd[d] : 0u) << 16;
    for (int64_t d = count; d < width; d++)
        to[d] = 0;
}

static void pack_values(const block *at, const ith_attn_pack *p, int64_t first)
{
    int64_t D = p->head_dim, width = chunk_width(D);
    for (int64_t i = 0; i < at->keys; i += 2) {
        const uint16_t *even = (const uint16_t *)key_row(p, p->v, first + i);
        const uint16_t *odd = (const uint16_t *)key_row(p, p->v, first + i + 1);
        for (int64_t d = 0; d < D; d += width)
            pair_rows(at->v + d * at->keys / 2 + i / 2 * width, even ? even + d : NULL, odd ? odd + d : NULL,
                      ith_min64(width, D - d), width);
    }
}

static void pack(const ith_attn_pack *p)
{
    char *to = (char *)p->packed + p->first / BLOCK * block_at(NULL, BLOCK, p->head_dim).bytes;
    for (int64_t first = 0; first < p->keys; first += BLOCK) {
        block at = block_at(to, p->keys - first, p->head_dim);
        *at.flag = pack_biases(at.b, p, first, at.keys) ? 1.0f : 0.0f;
        pack_keys(&at, p, first);
        pack_values(&at, p, first);
        to += at.bytes;
    }
}

/* ---- Scratch: the queries of a run, their pass, a tile's logits and weights ------------------------------------ */

typedef struct work {
    const ith_attn_run *r;
    pass t; /* without s, which only a tile has */
    int64_t padded;
    float c;
    uint16_t *q, *p; /* [rows][padded], [ROWS][keys] */
    float *s;        /* [ROWS][keys] */
    float *rounded;  /* [rows][LANES]: l', lane by lane */
    void *scratch;   /* oneDNN's */
} work;

static int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    const products *of = products_of(head_dim);
    int64_t padded = padded_dim(head_dim), floats = pass_floats(tiles->block_q, padded, 0);
    floats += ROWS * BLOCK + tiles->block_q * LANES;
    return floats * (int64_t)sizeof(float) + (tiles->block_q * padded + ROWS * BLOCK) * (int64_t)sizeof(uint16_t) +
           (of ? of->scratch_bytes : 0);
}

static work work_of(const ith_attn_run *r)
{
    int64_t rows = ith_round_up(r->q_rows, ROWS);
    work w = {.r = r, .padded = padded_dim(r->head_dim), .c = fabsf(r->scale) * (float)M_LOG2E, .s = r->scratch};
    w.p = (uint16_t *)(w.s + ROWS * BLOCK);
    w.q = w.p + ROWS * BLOCK;
    w.rounded = (float *)(w.q + rows * w.padded);
    w.t = pass_in(w.rounded + rows * LANES, rows, w.padded, 0);
    w.scratch = w.rounded + rows * LANES + pass_floats(rows, w.padded, 0);
    return w;
}

static void load_queries(work *w)
{
    int64_t D = w->r->head_dim;
    uint16_t sign = w->r->scale < 0.0f ? 0x8000 : 0;
    memset(w->q, 0, (size_t)(w->t.rows * w->padded) * sizeof *w->q);
    for (int64_t i = 0; i < w->r->q_rows; i++) {
        const uint16_t *row = w->r->q[i];
        for (int64_t d = 0; d < D; d++)
            w->q[i * w->padded + d] = row[d] ^ sign;
    }
}

/* A tile of ROWS queries: the part of the pass and of the run that is about it. */
typedef struct tile {
    pass t;
    ith_attn_run r;
    const uint16_t *q;
    float *rounded;
} tile;

static tile tile_at(const work *w, int64_t row, int64_t keys)
{
    tile a = {.t = w->t, .r = *w->r, .q = w->q + row * w->padded, .rounded = w->rounded + row * LANES};
    a.t.rows = ROWS;
    a.t.s = w->s;
    a.t.s_stride = keys;
    a.t.o += row * w->t.o_stride;
    a.t.top += row * LANES;
    a.t.l += row * LANES;
    a.t.m += row;
    a.t.shift += row;
    a.t.scale += row;
    a.r.q_rows = ith_min64(ROWS, w->r->q_rows - row);
    if (a.r.mask_kind != ITH_MASK_NONE)
        a.r.mask += row;
    return a;
}

/* ---- A block of keys ------------------------------------------------------------------------------------------- */

/* s = c x + b in place of x. */
static void finish_logits(const pass *t, const block *at, float c)
{
    for (int64_t i = 0; i < t->rows; i++) {
        float *s = t->s + i * t->s_stride;
        for (int64_t j = 0; j < at->keys; j += LANES)
            vec_store(s + j, vec_fma(vec_load(s + j), vec_set(c), vec_load(at->b + j)));
    }
}

/* p' = 2^(factor s - m), l = l scale + sum_j p_j, and l' as l. */
static __attribute__((noinline)) void row_weights(const tile *a, uint16_t *p, int64_t i, float factor)
{
    const float *s = a->t.s + i * a->t.s_stride;
    float *l = a->t.l + i * LANES, *rounded = a->rounded + i * LANES;
    vec c = vec_set(factor), away = vec_set(-a->t.shift[i]), scale = vec_set(a->t.scale[i]);
    vec sum = vec_set(0.0f), rounded_sum = vec_set(0.0f);
    for (int64_t j = 0; j < a->t.s_stride; j += 2 * LANES) {
        vec x = vec_exp2_short(vec_fma(vec_load(s + j), c, away));
        vec y = vec_exp2_short(vec_fma(vec_load(s + j + LANES), c, away));
        sum = vec_add(sum, vec_add(x, y));
        rounded_sum = store_weights_bf16(p + j, x, y, rounded_sum);
    }
    vec_store(l, vec_fma(vec_load(l), scale, sum));
    vec_store(rounded, vec_fma(vec_load(rounded), scale, rounded_sum));
}

/* p', l, l', and what o is to be multiplied by, from x. `first` and `keys`: of the block in the run. */
static void tile_weights(const work *w, tile *a, const block *at, int64_t first, int64_t keys)
{
    pass *t = &a->t;
    float factor = w->c;
    if (*at->flag != 0.0f || a->r.mask_kind != ITH_MASK_NONE) {
        finish_logits(t, at, w->c);
        factor = 1.0f;
    }
    if (a->r.mask_kind != ITH_MASK_NONE)
        pass_mask(t, &a->r, first, keys, at->keys);
    else if (a->r.softmax == ITH_SOFTMAX_ONLINE)
        pass_find_tops(t, at->keys);
    if (a->r.softmax == ITH_SOFTMAX_ONLINE) {
        for (int64_t i = 0; i < ROWS; i++)
            vec_store(t->top + i * LANES, vec_mul(vec_load(t->top + i * LANES), vec_set(factor)));
        pass_maxima(t);
    }
    for (int64_t i = 0; i < ROWS; i++)
        row_weights(a, w->p + i * at->keys, i, factor);
}

static void rescale(const pass *t)
{
    for (int64_t i = 0; i < ROWS; i++) {
        float *o = t->o + i * t->o_stride;
        if (t->scale[i] == 1.0f)
            continue;
        for (int64_t d = 0; d < t->o_stride; d += LANES)
            vec_store(o + d, vec_mul(vec_load(o + d), vec_set(t->scale[i])));
    }
}

/* The products of blocks of one length, open in this thread. */
typedef struct lanes {
    onednn_lane scores, values;
} lanes;

static bool lanes_open(const work *w, int64_t keys, lanes *out)
{
    const products *of = products_of(w->r->head_dim);
    int64_t i = keys / PANEL - 1;
    return onednn_lane_open(&of->scores[i], w->scratch, &out->scores) &&
           onednn_lane_open(&of->values[i], w->scratch, &out->values);
}

static void lanes_close(lanes *open)
{
    onednn_lane_close(&open->scores);
    onednn_lane_close(&open->values);
}

/* All queries over a block. */
static bool pass_block(work *w, const lanes *open, const block *at, int64_t first, int64_t keys)
{
    bool ok = true;
    for (int64_t row = 0; row < w->t.rows && ok && !ith_attn_halted(w->r); row += ROWS) {
        tile a = tile_at(w, row, at->keys);
        ok = onednn_lane_run(&open->scores, a.q, at->k, w->s);
        tile_weights(w, &a, at, first, keys);
        if (a.r.softmax == ITH_SOFTMAX_ONLINE)
            rescale(&a.t);
        ok = ok && onednn_lane_run(&open->values, w->p, at->v, a.t.o);
    }
    return ok;
}

/* Blocks [first, first + keys) of the run, all of one length. */
static bool pass_blocks(work *w, int64_t first, int64_t keys)
{
    lanes open = {0};
    int64_t whole_bytes = block_at(NULL, BLOCK, w->r->head_dim).bytes;
    const char *packed = (const char *)w->r->packed + first / BLOCK * whole_bytes;
    block at = block_at(packed, keys, w->r->head_dim);
    bool ok = keys == 0 || lanes_open(w, at.keys, &open);
    for (int64_t j = 0; j < keys && ok; j += BLOCK, packed += whole_bytes) {
        at = block_at(packed, keys - j, w->r->head_dim);
        ok = pass_block(w, &open, &at, first + j, ith_min64(BLOCK, keys - j));
    }
    lanes_close(&open);
    return ok;
}

/* o = o l / l', or NaN if the products failed. */
static void finish(work *w, bool ok)
{
    for (int64_t i = 0; i < w->r->q_rows; i++) {
        float l = vec_hsum(vec_load(w->t.l + i * LANES)), rounded = vec_hsum(vec_load(w->rounded + i * LANES));
        float *o = w->t.o + i * w->t.o_stride;
        vec ratio = vec_set(!ok ? NAN : rounded > 0.0f ? l / rounded : 1.0f);
        for (int64_t d = 0; d < w->padded; d += LANES)
            vec_store(o + d, vec_mul(ratio, vec_load(o + d)));
    }
    pass_store(&w->t, w->r);
}

static void run(const ith_attn_run *r)
{
    work w = work_of(r);
    int64_t whole = r->keys / BLOCK * BLOCK;
    load_queries(&w);
    pass_load_state(&w.t, r);
    memcpy(w.rounded, w.t.l, (size_t)(w.t.rows * LANES) * sizeof *w.rounded); /* older sums count as rounded */
    finish(&w, pass_blocks(&w, 0, whole) && pass_blocks(&w, whole, r->keys - whole));
}

const ith_attn_kernel ith_k_attn_bf16_onednn = {.name = "bf16_onednn",
                                                .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16,
                                                .logits = {"bf16_", 1},
                                                .outputs = {"bf16_", 1},
                                                .supports = supports,
                                                .tiles = tiles,
                                                .packed_bytes = packed_bytes,
                                                .scratch_bytes = scratch_bytes,
                                                .pack = pack,
                                                .run = run};
