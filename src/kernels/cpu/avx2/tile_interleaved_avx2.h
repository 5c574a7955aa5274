/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of AVX2 for interleaved rows of left (tile_interleaved_x86.h). */
#ifndef ITH_KERNELS_TILE_INTERLEAVED_AVX2_H
#define ITH_KERNELS_TILE_INTERLEAVED_AVX2_H

#include "tile_avx2.h"

#define TILE_INTERLEAVED_NUMBER(r, n) "16*" #n "+4*" #r "(" TILE_POINTER_0 "," TILE_INDEX ",4)"
#define TILE_EACH_INTERLEAVED_ROW(text, a, b) TILE_EACH_ROW_OF(text, a, b)
#define TILE_PLAIN_ROW(text, a, b)
#define TILE_FETCH_OUT
enum { TILE_INTERLEAVED = 4, TILE_FETCH_OUT_NUMBERS = 0 };

#include "../tile_interleaved_x86.h"

#endif
