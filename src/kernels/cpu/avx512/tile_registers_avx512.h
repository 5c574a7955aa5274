/* SPDX-License-Identifier: Apache-2.0 */
/* The registers and the turns of the tiles of AVX-512 (tile_x86.h), for up to 9 rows x 48 columns: 27 registers hold
 * sums, 3 hold a step of right, 1 holds a broadcast number. */
#ifndef ITH_KERNELS_TILE_REGISTERS_AVX512_H
#define ITH_KERNELS_TILE_REGISTERS_AVX512_H

#include "vec_avx512.h"

enum { TILE_FETCH_BYTES = 32 };

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

#define TILE_FETCH "prefetcht1 (" TILE_AHEAD "," TILE_INDEX ",8)\n\tprefetcht1 64(" TILE_AHEAD "," TILE_INDEX ",8)\n\t"
#define TILE_SUM(r, v) [s##r##v] "=&v"(sum[r][v])

#endif
