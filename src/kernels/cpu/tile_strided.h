/* SPDX-License-Identifier: Apache-2.0 */
/* tile_rows() of tile_rows.h for plain rows, computed by the tile of the product kernels, tile_sum(). Include a
 * tile_<isa>.h with four rows before this header. */
#ifndef ITH_KERNELS_TILE_STRIDED_H
#define ITH_KERNELS_TILE_STRIDED_H

#include <stddef.h>

_Static_assert(TILE_ROWS == 4, "four rows are listed");

/* See tile_rows.h. left: TILE_ROWS rows of `steps` numbers, left_stride numbers apart */
static inline __attribute__((always_inline)) void tile_rows(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                            const float *left, int64_t left_stride, const float *right,
                                                            int64_t steps, const float *from)
{
    const float *rows[] = {left, left + left_stride, left + 2 * left_stride, left + 3 * left_stride};
    tile_sum(sum, vecs, rows, right, steps, from, NULL);
}

#endif
