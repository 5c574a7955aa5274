/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernel in f32 with AVX-512. */
#ifndef ITH_KERNELS_ATTN_F32_AVX512_H
#define ITH_KERNELS_ATTN_F32_AVX512_H

#include "shape_avx512.h"

enum { TILE_ROWS = 8, TILE_VECS = 3 };
#define QUERIES (LANES * TILE_VECS)
/* With this many queries, q, o and a block of keys fill half of a cache of 2 MB at head size 128. */
enum { PANEL = 128, BLOCK_Q = 960 };

#include "../attn_f32_layout.h"

/* Functions of the kernel (kernel.h), for processors that have its instruction sets. */
void ith_attn_f32_avx512_pack(const ith_attn_pack *pack);
void ith_attn_f32_avx512_attend(const ith_attn_call *call);

#endif
