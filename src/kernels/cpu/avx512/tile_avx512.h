/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of products with AVX-512: 9 rows x 48 columns (tile_x86.h, tile_interleaved_x86.h). A step has 12 loads for
 * 27 multiply-adds. The processor divides the 24 multiply-adds of a step of 8 rows unevenly between its two multipliers
 * at times, and then loses 5%; this was not seen with 9 rows and 3 steps a turn (docs/perflog.md). */
#ifndef ITH_KERNELS_TILE_AVX512_H
#define ITH_KERNELS_TILE_AVX512_H

#include "tile_registers_avx512.h"

enum { TILE_ROWS = 9, TILE_VECS = 3 };

#define TILE_TURN_STEPS 3
#define TILE_EACH_STEP(text, a) text(0, a) text(1, a) text(2, a)
#define TILE_EACH_ROW(text) text(0) text(1) text(2) text(3) text(4) text(5) text(6) text(7) text(8)
#define TILE_EACH_ROW_OF(text, a, b)                                                                                   \
    text(0, a, b) text(1, a, b) text(2, a, b) text(3, a, b) text(4, a, b) text(5, a, b) text(6, a, b) text(7, a, b)    \
        text(8, a, b)
#define TILE_SUMS(v)                                                                                                   \
    TILE_SUM(0, v), TILE_SUM(1, v), TILE_SUM(2, v), TILE_SUM(3, v), TILE_SUM(4, v), TILE_SUM(5, v), TILE_SUM(6, v),    \
        TILE_SUM(7, v), TILE_SUM(8, v)

#include "../tile_x86.h"

#endif
