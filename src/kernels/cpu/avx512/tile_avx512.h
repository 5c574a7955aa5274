/* SPDX-License-Identifier: Apache-2.0 */
/* The tile of AVX-512: 9 rows x 48 columns (tile_x86.h). 27 registers hold sums, 3 hold a step of right, 1 holds a
 * broadcast number. A step has 12 loads for 27 multiply-adds. The processor divides the 24 multiply-adds of a step of 8
 * rows unevenly between its two multipliers at times, and then loses 5%; this was not seen with 9 rows and 3 steps a
 * turn (docs/perflog.md). */
#ifndef ITH_KERNELS_TILE_AVX512_H
#define ITH_KERNELS_TILE_AVX512_H

#include "vec_avx512.h"

enum { TILE_ROWS = 9, TILE_VECS = 3, TILE_FETCH_BYTES = 32 };

#define TILE_VEC_BYTES "64"
#define TILE_RIGHT_0 "%%zmm27"
#define TILE_RIGHT_1 "%%zmm28"
#define TILE_RIGHT_2 "%%zmm29"
#define TILE_BROADCAST "%%zmm30"
#define TILE_POINTER_0 "%%rax"
#define TILE_POINTER_1 "%%rcx"
#define TILE_POINTER_2 "%%rsi"
#define TILE_POINTER_3 "%%rdi"
#define TILE_POINTER_4 "%%r8"
#define TILE_POINTER_5 "%%r9"
#define TILE_POINTER_6 "%%r10"
#define TILE_POINTER_7 "%%r11"
#define TILE_AHEAD "%%rdx"
#define TILE_POINTER_8 "%%r12"
#define TILE_RIGHT "%%r13"
#define TILE_INDEX "%%r14"
#define TILE_CLOBBERS                                                                                                  \
    "rdx", "rax", "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "xmm27", "xmm28", "xmm29", "xmm30"

#define TILE_TURN_STEPS 3
#define TILE_EACH_STEP(text, a) text(0, a) text(1, a) text(2, a)
#define TILE_FETCH "prefetcht1 (" TILE_AHEAD "," TILE_INDEX ",8)\n\tprefetcht1 64(" TILE_AHEAD "," TILE_INDEX ",8)\n\t"
#define TILE_EACH_ROW(text) text(0) text(1) text(2) text(3) text(4) text(5) text(6) text(7) text(8)
#define TILE_EACH_ROW_OF(text, a, b)                                                                                   \
    text(0, a, b) text(1, a, b) text(2, a, b) text(3, a, b) text(4, a, b) text(5, a, b) text(6, a, b) text(7, a, b)    \
        text(8, a, b)
#define TILE_SUM(r, v) [s##r##v] "=&v"(sum[r][v])
#define TILE_SUMS(v)                                                                                                   \
    TILE_SUM(0, v), TILE_SUM(1, v), TILE_SUM(2, v), TILE_SUM(3, v), TILE_SUM(4, v), TILE_SUM(5, v), TILE_SUM(6, v),    \
        TILE_SUM(7, v), TILE_SUM(8, v)

#include "../tile_x86.h"

#endif
