/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of a matrix product in the registers of NEON: 4 rows x 24 columns (tile_x86.h explains the tile). 24
 * registers hold sums, 4 hold four steps of each row of left, and 4 hold numbers of right. A multiply-add takes its
 * number of left from a lane of a register. */
#ifndef ITH_KERNELS_TILE_NEON_H
#define ITH_KERNELS_TILE_NEON_H

#include "../fetch.h"
#include "../tile_fetch.h"
#include "vec_neon.h"

#include <stddef.h>

enum { TILE_FETCH_BYTES = 16 };

/* Adds to each row of sum: number `lane` of this row in x, times a step of right. */
#define TILE_STEP(lane)                                                                                                \
    _Pragma("GCC unroll 4") for (int v = 0; v < vecs; v++, right += LANES)                                             \
    {                                                                                                                  \
        vec y = vec_load(right);                                                                                       \
        _Pragma("GCC unroll 4") for (int r = 0; r < TILE_ROWS; r++)                                                    \
        {                                                                                                              \
            sum[r][v].low = vfmaq_laneq_f32(sum[r][v].low, y.low, x[r], lane);                                         \
            sum[r][v].high = vfmaq_laneq_f32(sum[r][v].high, y.high, x[r], lane);                                      \
        }                                                                                                              \
    }                                                                                                                  \
    right += (TILE_VECS - vecs) * LANES

/* Computes the first `vecs` vectors of each row of sum. `vecs`, 1 to TILE_VECS, is a constant of the caller.
 * left    pointers to `steps` contiguous numbers each; pointers may be equal
 * right   [steps][TILE_VECS * LANES]; the first `vecs` vectors of each step are read
 * from    [vecs * LANES], the numbers from which the sums start
 * ahead   memory that the tile fetches; NULL: none */
static inline __attribute__((always_inline)) void tile_sum(vec sum[TILE_ROWS][TILE_VECS], const int vecs,
                                                           const float *const left[TILE_ROWS], const float *right,
                                                           int64_t steps, const float *from, const tile_fetch *ahead)
{
    float32x4_t x[TILE_ROWS];
    tile_fetch next = {(const char *)left[0], 0};
    int64_t k = 0;
#pragma GCC unroll 4
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[r][v] = vec_load(from + v * LANES);
    if (ahead != NULL)
        next = *ahead;
    for (; k + 4 <= steps; k += 4, next.from += 4 * next.step_bytes) {
#pragma GCC unroll 4
        for (int r = 0; r < TILE_ROWS; r++)
            x[r] = vld1q_f32(left[r] + k);
        if (ahead != NULL)
            fetch_line(next.from);
        TILE_STEP(0);
        TILE_STEP(1);
        TILE_STEP(2);
        TILE_STEP(3);
    }
    for (; k < steps; k++) {
#pragma GCC unroll 4
        for (int r = 0; r < TILE_ROWS; r++)
            x[r] = vld1q_dup_f32(left[r] + k);
        TILE_STEP(0);
    }
}

#undef TILE_STEP

#endif
