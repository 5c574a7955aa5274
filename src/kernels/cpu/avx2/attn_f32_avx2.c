/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with AVX2 and FMA: attn_f32_tmpl.c with the tile of these instruction sets. */
#include "tile_avx2.h"

#include "../tile_strided.h"

#define QUERIES (LANES * TILE_VECS)
enum { PANEL = 256, BLOCK_Q = 192 };

#include "../attn_f32_tmpl.c"

const ith_attn_kernel ith_k_attn_f32_avx2_4x24 = {
    .name = "f32_avx2", .cpu = ITH_CPU_AVX2, .logits = {"f32_avx2", 1}, .outputs = {"f32_avx2", 1}, ITH_ATTN_FUNCTIONS};
