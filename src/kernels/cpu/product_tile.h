/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of a product kernel over a tile in registers. A panel is [steps][COLUMNS], in words of 32 bits: numbers of
 * f32, or pairs of bf16 if the tile multiplies these. A call computes
 *
 *     for each TILE_ROWS rows of left: a tile of sums over all steps in registers, then out = sums, or out += sums
 *
 * where out, as long as the tile is computed, is fetched into the first-level cache. Include a tile_<isa>.h before this
 * header. */
#ifndef ITH_KERNELS_PRODUCT_TILE_H
#define ITH_KERNELS_PRODUCT_TILE_H

#include "../../base/size.h"
#include "../product.h"

enum { COLUMNS = TILE_VECS * LANES };

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
    tile_fetch next = fetch_of(c, i / TILE_ROWS);
    tile_sum(sum, vecs, left, c->right, c->steps, zeros, &next);
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

static void multiply_tiles(const ith_product_call *c)
{
    if (c->columns > 2 * LANES)
        multiply_3(c);
    else if (c->columns > LANES)
        multiply_2(c);
    else if (c->columns > 0)
        multiply_1(c);
}

#endif
