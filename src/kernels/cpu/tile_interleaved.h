/* SPDX-License-Identifier: Apache-2.0 */
/* tile_rows() of tile_strided.h for interleaved rows, which have no stride. Include a header that includes
 * tile_interleaved_x86.h before this header. */
#ifndef ITH_KERNELS_TILE_INTERLEAVED_H
#define ITH_KERNELS_TILE_INTERLEAVED_H

#include <stddef.h>

/* See tile_strided.h. left: [steps][TILE_ROWS] */
static inline __attribute__((always_inline)) void tile_rows(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                            const float *left, int64_t left_stride, const float *right,
                                                            int64_t steps, const float *from, const float *out)
{
    (void)left_stride;
    tile_sum_interleaved(sum, vecs, left, NULL, right, steps, from, NULL, out);
}

#endif
