/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernel in f32 with AVX2 and FMA. */
#ifndef ITH_KERNELS_ATTN_F32_AVX2_H
#define ITH_KERNELS_ATTN_F32_AVX2_H

#include "shape_avx2.h"

#define QUERIES (LANES * TILE_VECS)
enum { PANEL = 256, BLOCK_Q = 192 };

#include "../attn_f32_layout.h"

/* Functions of the kernel (kernel.h), for processors that have its instruction sets. */
void ith_attn_f32_avx2_pack(const ith_attn_pack *pack);
void ith_attn_f32_avx2_attend(const ith_attn_call *call);

#endif
