/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of products with AVX-512 for interleaved rows of left (tile_interleaved_x86.h): eight rows are interleaved,
 * because vectors interleave eight rows fast, and the ninth is plain. In a call of 192 steps the tile fetches 24 of the
 * 27 cache lines of out. */
#ifndef ITH_KERNELS_TILE_INTERLEAVED_AVX512_H
#define ITH_KERNELS_TILE_INTERLEAVED_AVX512_H

#include "tile_avx512.h"

#define TILE_INTERLEAVED_NUMBER(r, n) "32*" #n "+4*" #r "(" TILE_POINTER_0 "," TILE_INDEX ",8)"
#define TILE_EACH_INTERLEAVED_ROW(text, a, b)                                                                          \
    text(0, a, b) text(1, a, b) text(2, a, b) text(3, a, b) text(4, a, b) text(5, a, b) text(6, a, b) text(7, a, b)
#define TILE_PLAIN_ROW(text, a, b) text(8, a, b)
#define TILE_FETCH_OUT "prefetcht0 (" TILE_POINTER_1 "," TILE_INDEX ",2)\n\t"
enum { TILE_INTERLEAVED = 8, TILE_FETCH_OUT_NUMBERS = 2 };

#include "../tile_interleaved_x86.h"

#endif
