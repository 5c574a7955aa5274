/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in f32: the body of cpu/<isa>/product_f32_<isa>.c. A panel is [steps][COLUMNS]. A call computes
 *
 *     for each TILE_ROWS rows of left: a tile of sums over all steps in registers, then out = sums, or out += sums
 *
 * where out, as long as the tile is computed, is fetched into the first-level cache.
 *
 * The including file includes its tile_<isa>.h and defines DEPTH, the best number of steps of a call. */
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../product.h"

enum { COLUMNS = TILE_VECS * LANES, STEP = 2 };

static int64_t right_bytes(int64_t steps)
{
    return ith_round_up(steps * COLUMNS * (int64_t)sizeof(float), 64);
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

static void round_numbers(float *x, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        x[i] = ith_round_to_bf16(x[i]);
}

static void pack_left(const ith_product_left *p)
{
    float *to = p->to;
    const uint16_t *shorts = p->x;
    int64_t whole = p->dtype == ITH_F32 ? 0 : p->count / LANES * LANES;
    if (p->dtype == ITH_BF16)
        for (int64_t i = 0; i < whole; i += LANES)
            vec_store(to + i, vec_load_bf16(shorts + i));
    if (p->dtype == ITH_F16)
        for (int64_t i = 0; i < whole; i += LANES)
            vec_store(to + i, vec_load_f16(shorts + i));
    ith_to_f32(to + whole, (const char *)p->x + whole * ith_dtype_bytes(p->dtype), p->dtype, p->count - whole);
    if (p->rounds && p->dtype != ITH_BF16)
        round_numbers(to, p->count);
}

/* Reads `count` numbers, at most LANES, from a column. The other lanes, and a column that is NULL, are zeros. */
static vec load_column(const float *x, int64_t k, int64_t count, bool rounds)
{
    float part[LANES] = {0};
    if (x)
        memcpy(part, x + k, (size_t)count * sizeof *x);
    if (rounds)
        round_numbers(part, LANES);
    return vec_load(part);
}

/* Packs steps [k, k + steps) of `count` columns into the columns that begin at `panel`; both are at most LANES. */
static void pack_square(float *panel, const ith_product_right *p, const float *const *columns, int64_t count, int64_t k,
                        int64_t steps)
{
    vec x[LANES];
    for (int64_t j = 0; j < LANES; j++)
        x[j] = load_column(j < count ? columns[j] : NULL, k, steps, p->rounds);
    vec_transpose(x);
    for (int64_t n = 0; n < steps; n++) {
        float step[LANES];
        vec_store(step, x[n]);
        memcpy(panel + (k + n) * COLUMNS, step, (size_t)count * sizeof *panel);
    }
}

/* The same for LANES steps of LANES columns that exist, without rounding. */
static inline void pack_whole_square(float *panel, const float *const *columns, int64_t k)
{
    vec x[LANES];
    for (int j = 0; j < LANES; j++)
        x[j] = vec_load(columns[j] + k);
    vec_transpose(x);
    for (int n = 0; n < LANES; n++)
        vec_store(panel + (k + n) * COLUMNS, x[n]);
}

/* Packs `count` columns, at most LANES, into the columns that begin at `panel`. */
static void pack_columns(float *panel, const ith_product_right *p, const float *const *columns, int64_t count)
{
    bool whole = count == LANES && !p->rounds;
    for (int64_t j = 0; j < count; j++)
        whole = whole && columns[j];
    int64_t k = 0;
    for (; whole && k + LANES <= p->steps; k += LANES)
        pack_whole_square(panel, columns, k);
    for (; k < p->steps; k += LANES)
        pack_square(panel, p, columns, count, k, ith_min64(LANES, p->steps - k));
}

static void pack_right(const ith_product_right *p)
{
    for (int64_t j = 0; j < p->count; j += LANES)
        pack_columns((float *)p->panel + p->first + j, p, p->x + j, ith_min64(LANES, p->count - j));
}

static void pack_turned(const ith_product_turned *p)
{
    float *panel = (float *)p->panel + p->first * COLUMNS;
    for (int64_t k = 0; k < p->count; k++)
        memcpy(panel + k * COLUMNS, p->x + k * p->stride, COLUMNS * sizeof *panel);
    if (p->rounds)
        round_numbers(panel, p->count * COLUMNS);
}

/* ---- The product ----------------------------------------------------------------------------------------------- */

/* Writes the first `rows` rows and `columns` columns of a tile. Only constants are indices of `sum`, which therefore
 * stays in registers. */
static inline __attribute__((always_inline)) void
store_part(const ith_product_call *c, float *out, vec sum[TILE_ROWS][TILE_VECS], int64_t rows, const int vecs)
{
    float sums[TILE_ROWS][COLUMNS];
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            vec_store(sums[r] + v * LANES, sum[r][v]);
    for (int64_t r = 0; r < rows; r++, out += c->out_stride)
        for (int64_t j = 0; j < c->columns; j++)
            out[j] = c->adds ? out[j] + sums[r][j] : sums[r][j];
}

static inline __attribute__((always_inline)) void store(const ith_product_call *c, float *out,
                                                        vec sum[TILE_ROWS][TILE_VECS], const int vecs, const bool adds)
{
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++, out += c->out_stride)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            vec_store(out + v * LANES, adds ? vec_add(vec_load(out + v * LANES), sum[r][v]) : sum[r][v]);
}

/* What the tile number n of a call fetches: 16 bytes a step of the next panel or, when the panel is done, a row of the
 * next left operand, 4 bytes a step; nothing but the panel at hand when all is done. */
static inline tile_fetch fetch_of(const ith_product_call *c, int64_t n)
{
    enum { PANEL_TILES = COLUMNS * sizeof(float) / 16 };
    if (c->next && n < PANEL_TILES)
        return (tile_fetch){(const char *)c->next + n * 16 * c->steps, 64};
    n -= c->next ? PANEL_TILES : 0;
    if (n < c->next_left_rows)
        return (tile_fetch){(const char *)c->next_left + n * c->next_left_stride, 16};
    return (tile_fetch){c->right, 0};
}

/* Computes a tile: TILE_ROWS rows from row i on, of which `rows` exist, by `vecs` vectors. In place of a row that does
 * not exist stands the last one. */
static inline __attribute__((always_inline)) void tile_at(const ith_product_call *c, int64_t i, const int vecs)
{
    static const float zeros[COLUMNS];
    const float *left[TILE_ROWS];
    const char *row = (const char *)c->left + i * c->left_stride;
    float *out = c->out + i * c->out_stride, *ahead = out;
    int64_t rows = ith_min64(TILE_ROWS, c->rows - i);
    vec sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int64_t r = 0; r < TILE_ROWS; r++) {
        left[r] = (const float *)(const void *)row;
        row += r + 1 < rows ? c->left_stride : 0;
        for (int v = 0; v < vecs; v++)
            __builtin_prefetch(ahead + v * LANES, 1);
        ahead += r + 1 < rows ? c->out_stride : 0;
    }
    tile_sum(sum, vecs, left, c->right, c->steps, zeros, fetch_of(c, i / TILE_ROWS));
    if (rows < TILE_ROWS || c->columns < vecs * LANES)
        store_part(c, out, sum, rows, vecs);
    else if (c->adds)
        store(c, out, sum, vecs, true);
    else
        store(c, out, sum, vecs, false);
}

static __attribute__((noinline)) void multiply_1(const ith_product_call *c)
{
    for (int64_t i = 0; i < c->rows; i += TILE_ROWS)
        tile_at(c, i, 1);
}

static __attribute__((noinline)) void multiply_2(const ith_product_call *c)
{
    for (int64_t i = 0; i < c->rows; i += TILE_ROWS)
        tile_at(c, i, 2);
}

static __attribute__((noinline)) void multiply_3(const ith_product_call *c)
{
    for (int64_t i = 0; i < c->rows; i += TILE_ROWS)
        tile_at(c, i, 3);
}

static void multiply(const ith_product_call *c)
{
    if (c->columns > 2 * LANES)
        multiply_3(c);
    else if (c->columns > LANES)
        multiply_2(c);
    else if (c->columns > 0)
        multiply_1(c);
}
