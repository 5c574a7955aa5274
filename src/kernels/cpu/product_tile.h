/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a product kernel over the tiles of a call. A right panel is [steps][COLUMNS] words of 32 bits: f32
 * numbers, or pairs of bf16 numbers if the tile multiplies pairs (TILE_MULTIPLY in tile_x86.h). A call computes
 *
 *     for each TILE_ROWS rows of left: a tile of sums over all steps in registers, then out = sums, or out += sums
 *
 * If few rows are left at the end, they are computed by another loop, which takes less time than a tile. While a
 * tile is computed, its rows of out are fetched into the first-level cache. Include a tile_<isa>.h before this header,
 * or one with tile_sum_interleaved() that defines TILE_INTERLEAVES. */
#ifndef ITH_KERNELS_PRODUCT_TILE_H
#define ITH_KERNELS_PRODUCT_TILE_H

#include "../../base/size.h"
#include "../product.h"
#include "fetch.h"

/* FEW_ROWS: the most remaining rows that few_rows_at computes. It multiplies f32 numbers, so it computes none if the
 * tile multiplies pairs of bf16 numbers. */
#ifdef TILE_MULTIPLIES_PAIRS
enum { COLUMNS = TILE_VECS * LANES, FEW_ROWS = 0 };
#else
enum { COLUMNS = TILE_VECS * LANES, FEW_ROWS = TILE_ROWS / 2 };
#endif

#ifndef TILE_INTERLEAVES
enum { TILE_INTERLEAVED = TILE_ROWS, TILE_FETCH_OUT_NUMBERS = 0 };
#endif

/* Writes the first `rows` rows of a tile and the call's columns of them, by way of memory: `sum` stays in registers
 * only if all its indices are constants. */
static inline __attribute__((always_inline)) void
store_part(const ith_product_call *c, float *out, vec sum[TILE_ROWS][TILE_VECS], int64_t rows, const int vecs)
{
    float sums[TILE_ROWS][COLUMNS];
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            vec_store(sums[r] + v * LANES, sum[r][v]);
    for (int64_t r = 0; r < rows; r++, out += c->out_stride)
        for (int64_t j = 0; j < c->columns; j++)
            out[j] = c->adds ? out[j] + sums[r][j] : sums[r][j];
}

/* Writes `rows` rows of `vecs` vectors. */
static inline __attribute__((always_inline)) void store(const ith_product_call *c, float *out,
                                                        vec sum[TILE_ROWS][TILE_VECS], const int rows, const int vecs,
                                                        const bool adds)
{
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++, out += c->out_stride)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            vec_store(out + v * LANES, adds ? vec_add(vec_load(out + v * LANES), sum[r][v]) : sum[r][v]);
}

/* The memory that tile number n of a call fetches. The first tiles fetch the next right panel, TILE_FETCH_BYTES
 * bytes for each of their steps. Each later tile fetches one row of next_left, 4 bytes for each step. The remaining
 * tiles fetch this call's panel, which is in the cache already. */
static inline tile_fetch tile_fetch_of(const ith_product_call *c, int64_t n)
{
    enum { PANEL_TILES = COLUMNS * sizeof(float) / TILE_FETCH_BYTES };
    if (c->next && n < PANEL_TILES)
        return (tile_fetch){(const char *)c->next + n * TILE_FETCH_BYTES * c->steps, TILE_FETCH_BYTES};
    n -= c->next ? PANEL_TILES : 0;
    if (n < c->next_left_rows)
        return (tile_fetch){(const char *)c->next_left + n * c->next_left_stride, 4};
    return (tile_fetch){c->right, 4};
}

/* Multiplies `rows` rows of left, from row i on. Rows beyond them are computed as copies of the last row or, if rows
 * are interleaved, from the numbers that lie there. */
static inline __attribute__((always_inline)) void sum_tile(const ith_product_call *c, int64_t i, int64_t rows,
                                                           const int vecs, const bool interleaved,
                                                           vec sum[TILE_ROWS][TILE_VECS])
{
    static const float zeros[COLUMNS];
    const float *left[TILE_ROWS];
    const char *row = (const char *)c->left + i * c->left_stride;
    const tile_fetch next = tile_fetch_of(c, i / TILE_ROWS);
#ifdef TILE_INTERLEAVES
    if (interleaved) {
        tile_sum_interleaved(sum, vecs, (const float *)(const void *)row,
                             (const float *)(const void *)(row + TILE_INTERLEAVED * c->left_stride), c->right, c->steps,
                             zeros, &next, c->out + i * c->out_stride);
        return;
    }
#else
    (void)interleaved;
#endif
#pragma GCC unroll 16
    for (int64_t r = 0; r < TILE_ROWS; r++) {
        left[r] = (const float *)(const void *)row;
        row += r + 1 < rows ? c->left_stride : 0;
    }
    tile_sum(sum, vecs, left, c->right, c->steps, zeros, &next);
}

/* Fetches the first `vecs` vectors of `rows` rows of out into the first-level cache. */
static inline __attribute__((always_inline)) void fetch_out(const ith_product_call *c, const float *out, int64_t rows,
                                                            const int vecs)
{
#pragma GCC unroll 16
    for (int64_t r = 0; r < TILE_ROWS; r++) {
        for (int v = 0; v < vecs; v++)
            __builtin_prefetch(out + v * LANES, 1);
        out += r + 1 < rows ? c->out_stride : 0;
    }
}

/* Computes the tile of `vecs` vectors of columns that begins at row i. Rows beyond the last are not stored. */
static inline __attribute__((always_inline)) void tile_at(const ith_product_call *c, int64_t i, const int vecs,
                                                          const bool interleaved)
{
    float *out = c->out + i * c->out_stride;
    int64_t rows = ith_min64(TILE_ROWS, c->rows - i);
    vec sum[TILE_ROWS][TILE_VECS];
    const bool tile_fetches =
        interleaved && vecs == TILE_VECS && TILE_FETCH_OUT_NUMBERS > 0 && c->out_stride == COLUMNS;
    if (!tile_fetches)
        fetch_out(c, out, rows, vecs);
    sum_tile(c, i, rows, vecs, interleaved, sum);
    if (rows < TILE_ROWS || c->columns < vecs * LANES)
        store_part(c, out, sum, rows, vecs);
    else if (c->adds)
        store(c, out, sum, TILE_ROWS, vecs, true);
    else
        store(c, out, sum, TILE_ROWS, vecs, false);
}

/* Computes the last `rows` rows of a call, from row i on, with all columns of the panel. `rows` is a constant of the
 * caller. */
static inline __attribute__((always_inline)) void few_rows_at(const ith_product_call *c, int64_t i, const int rows)
{
    const char *left = (const char *)c->left + i * c->left_stride;
    const int64_t row_bytes = c->interleaved ? (int64_t)sizeof(float) : c->left_stride;
    const int64_t step_bytes = c->interleaved ? (int64_t)sizeof(float) * TILE_INTERLEAVED : (int64_t)sizeof(float);
    const float *right = c->right;
    float *out = c->out + i * c->out_stride;
    vec sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECS; v++) {
            __builtin_prefetch(out + r * c->out_stride + v * LANES, 1);
            sum[r][v] = vec_set(0.0f);
        }
    for (int64_t k = 0; k < c->steps; k++, left += step_bytes, right += COLUMNS)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < TILE_VECS; v++)
                sum[r][v] = vec_fma(vec_load(right + v * LANES),
                                    vec_set(*(const float *)(const void *)(left + r * row_bytes)), sum[r][v]);
    if (c->adds)
        store(c, out, sum, rows, TILE_VECS, true);
    else
        store(c, out, sum, rows, TILE_VECS, false);
}

/* Computes the last rows of a call if they are at most FEW_ROWS and all columns of the panel are wanted. Returns false
 * if they must be computed by a tile. */
static __attribute__((noinline)) bool few_rows(const ith_product_call *c, int64_t i)
{
    const int64_t rows = c->columns == COLUMNS ? c->rows - i : 0;
    if (rows > FEW_ROWS)
        return false;
    switch (rows) {
    case 1: few_rows_at(c, i, 1); return true;
    case 2: few_rows_at(c, i, 2); return true;
    case 3: few_rows_at(c, i, 3); return true;
    case 4: few_rows_at(c, i, 4); return true;
    default: return false;
    }
}

/* The prefetch of next_out, some cache lines with each tile. */
static fetch_rows fetch_next_out_of(const ith_product_call *c)
{
    return fetch_rows_of(c->next_out, c->next_out_rows, c->next_out_stride, c->next_out_bytes,
                         ith_div_up(c->rows, TILE_ROWS));
}

/* Multiplies all rows of a call by `vecs` vectors of columns. */
static inline __attribute__((always_inline)) void multiply_rows(const ith_product_call *c, const int vecs,
                                                                const bool interleaved)
{
    fetch_rows out = fetch_next_out_of(c);
    for (int64_t i = 0; i < c->rows; i += TILE_ROWS) {
        fetch_some_rows(&out);
        if (vecs < TILE_VECS || !few_rows(c, i))
            tile_at(c, i, vecs, interleaved);
    }
}

/* Multiplies all rows of a call, in the form in which they lie. */
static inline __attribute__((always_inline)) void multiply_columns(const ith_product_call *c, const int vecs)
{
#ifdef TILE_INTERLEAVES
    if (c->interleaved) {
        multiply_rows(c, vecs, true);
        return;
    }
#endif
    multiply_rows(c, vecs, false);
}

static __attribute__((noinline)) void multiply_1(const ith_product_call *c)
{
    multiply_columns(c, 1);
}

static __attribute__((noinline)) void multiply_2(const ith_product_call *c)
{
    multiply_columns(c, 2);
}

static __attribute__((noinline)) void multiply_3(const ith_product_call *c)
{
    multiply_columns(c, 3);
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
