/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with AVX2 and FMA: attn_f32_tmpl.c with the tile sizes for these instruction sets. */
#include "vec_avx2.h"

#define ROWS 6
/* Vectors in a row of the tile: 12 registers hold sums, 2 hold queries, 1 holds a broadcast number. */
#define TILE_VECS 2
#define QUERIES (LANES * TILE_VECS)
enum { BLOCK_Q = 192 };

#include "../attn_f32_tmpl.c"

const ith_attn_kernel ith_k_attn_f32_avx2_6x16 = {
    .name = "f32_avx2", .cpu = ITH_CPU_AVX2, .logits = {"f32_avx2", 1}, .outputs = {"f32_avx2", 1}, ITH_ATTN_FUNCTIONS};
