/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of a matrix product in registers, in C, for instruction sets with 32 vector registers:
 *
 *     sum[r][j] = from[j] + sum over k < steps of left[k][r] right[k][j]
 *
 * The numbers of left are broadcast; the columns of right lie in the lanes of up to TILE_VECS vectors. Each sum[r][j]
 * is one chain of fused multiply-adds in the order of k, for any number of columns. Compilers keep all sums in
 * registers if the function that calls this one is not inlined.
 *
 * Include a vec_<isa>.h before this header, and define TILE_ROWS = 8 and TILE_VECS. */
#ifndef ITH_KERNELS_TILE_ROWS_H
#define ITH_KERNELS_TILE_ROWS_H

#include <stdint.h>

/* Computes the first `vecs` vectors of each row of sum. `vecs`, 1 to TILE_VECS, is a constant of the caller.
 * left    [steps][TILE_ROWS]: interleaved rows, which have no stride
 * right   [steps][TILE_VECS * LANES]; the first `vecs` vectors of each step are read
 * from    [vecs * LANES], the numbers from which the sums start */
static inline __attribute__((always_inline)) void tile_rows(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                            const float *left, int64_t left_stride, const float *right,
                                                            int64_t steps, const float *from)
{
    (void)left_stride;
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 4
        for (int n = 0; n < vecs; n++)
            sum[r][n] = vec_load(from + n * LANES);
#pragma GCC unroll 2
    for (int64_t k = 0; k < steps; k++, left += TILE_ROWS, right += TILE_VECS * LANES) {
        vec x[TILE_VECS];
#pragma GCC unroll 4
        for (int n = 0; n < vecs; n++)
            x[n] = vec_load(right + n * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++) {
            vec y = vec_set(left[r]);
#pragma GCC unroll 4
            for (int n = 0; n < vecs; n++)
                sum[r][n] = vec_fma(x[n], y, sum[r][n]);
        }
    }
}

#endif
