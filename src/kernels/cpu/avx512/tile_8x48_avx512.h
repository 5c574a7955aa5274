/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of attention with AVX-512: 8 interleaved rows x 48 columns (tile_interleaved_x86.h). The 9 rows of
 * tile_avx512.h do not divide panels of keys. With 96 steps or more the tile fetches all 24 cache lines of out. */
#ifndef ITH_KERNELS_TILE_8X48_AVX512_H
#define ITH_KERNELS_TILE_8X48_AVX512_H

#include "tile_registers_avx512.h"

#define TILE_TURN_STEPS 4
#define TILE_EACH_STEP(text, a) text(0, a) text(1, a) text(2, a) text(3, a)
#define TILE_EACH_ROW(text) text(0) text(1) text(2) text(3) text(4) text(5) text(6) text(7)
#define TILE_EACH_ROW_OF(text, a, b)                                                                                   \
    text(0, a, b) text(1, a, b) text(2, a, b) text(3, a, b) text(4, a, b) text(5, a, b) text(6, a, b) text(7, a, b)
#define TILE_SUMS(v)                                                                                                   \
    TILE_SUM(0, v), TILE_SUM(1, v), TILE_SUM(2, v), TILE_SUM(3, v), TILE_SUM(4, v), TILE_SUM(5, v), TILE_SUM(6, v),    \
        TILE_SUM(7, v)

#include "../tile_x86.h"

#define TILE_INTERLEAVED_NUMBER(r, n) "32*" #n "+4*" #r "(" TILE_POINTER_0 "," TILE_INDEX ",8)"
#define TILE_EACH_INTERLEAVED_ROW(text, a, b) TILE_EACH_ROW_OF(text, a, b)
#define TILE_PLAIN_ROW(text, a, b)
#define TILE_FETCH_OUT "prefetcht0 (" TILE_POINTER_1 "," TILE_INDEX ",4)\n\t"
enum { TILE_INTERLEAVED = 8, TILE_FETCH_OUT_BYTES = 16 };

#include "../tile_interleaved_x86.h"

#endif
