/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of AVX2 and FMA: 4 rows x 24 columns (tile_x86.h). 12 registers hold sums, 3 hold a step of right,
 * 1 holds a broadcast number. */
#ifndef ITH_KERNELS_TILE_AVX2_H
#define ITH_KERNELS_TILE_AVX2_H

#include "vec_avx2.h"

enum { TILE_FETCH_BYTES = 16 };

#define TILE_VEC_BYTES "32"
#define TILE_RIGHT_0 "%%ymm12"
#define TILE_RIGHT_1 "%%ymm13"
#define TILE_RIGHT_2 "%%ymm14"
#define TILE_BROADCAST "%%ymm15"
#define TILE_POINTER_0 "%%r8"
#define TILE_POINTER_1 "%%r9"
#define TILE_POINTER_2 "%%r10"
#define TILE_POINTER_3 "%%r11"
#define TILE_AHEAD "%%rax"
#define TILE_RIGHT "%%rcx"
#define TILE_INDEX "%%rdx"
#define TILE_CLOBBERS "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "xmm12", "xmm13", "xmm14", "xmm15"

#define TILE_TURN_STEPS 4
#define TILE_EACH_STEP(text, a) text(0, a) text(1, a) text(2, a) text(3, a)
#define TILE_FETCH "prefetcht1 (" TILE_AHEAD "," TILE_INDEX ",4)\n\t"
#define TILE_EACH_ROW(text) text(0) text(1) text(2) text(3)
#define TILE_EACH_ROW_OF(text, a, b) text(0, a, b) text(1, a, b) text(2, a, b) text(3, a, b)
#define TILE_SUM(r, v) [s##r##v] "=&x"(sum[r][v])
#define TILE_SUMS(v) TILE_SUM(0, v), TILE_SUM(1, v), TILE_SUM(2, v), TILE_SUM(3, v)

#include "../tile_x86.h"

#endif
