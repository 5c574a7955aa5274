/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of a matrix product in registers, with the tile of the product kernels, tile_sum(). Include a tile_<isa>.h
 * with four rows before this header. */
#ifndef ITH_KERNELS_TILE_STRIDED_H
#define ITH_KERNELS_TILE_STRIDED_H

#include <stddef.h>

_Static_assert(TILE_ROWS == 4, "four rows are listed");

/* Computes sum[r][j] = from[j] + sum over k < steps of left[r][k] right[k][j], each as one chain of fused multiply-adds
 * in the order of k, for the first `vecs` vectors of each row. `vecs`, 1 to TILE_VECS, is a constant of the caller.
 * left    TILE_ROWS rows of `steps` numbers, left_stride numbers apart
 * right   [steps][TILE_VECS * LANES]; the first `vecs` vectors of each step are read
 * from    [vecs * LANES], the numbers from which the sums start
 * out     [TILE_ROWS][TILE_VECS * LANES], memory that is written after the tile, which may fetch it */
static inline __attribute__((always_inline)) void tile_rows(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                            const float *left, int64_t left_stride, const float *right,
                                                            int64_t steps, const float *from, const float *out)
{
    const float *rows[] = {left, left + left_stride, left + 2 * left_stride, left + 3 * left_stride};
    (void)out;
    tile_sum(sum, vecs, rows, right, steps, from, NULL);
}

#endif
