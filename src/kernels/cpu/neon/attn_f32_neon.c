/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with NEON: attn_f32_tmpl.c with the tile sizes for this instruction set. */
#include "vec_neon.h"

#define ROWS 6
/* Vectors of two registers each in a row of the tile: 24 registers hold sums, 4 hold queries, 1 holds a broadcast
 * number. */
#define TILE_VECS 2
#define QUERIES (LANES * TILE_VECS)
enum { BLOCK_Q = 192 };

#include "../attn_f32_tmpl.c"

const ith_attn_kernel ith_k_attn_f32_neon_6x16 = {
    .name = "f32_neon", .cpu = ITH_CPU_NEON, .logits = {"f32_neon", 1}, .outputs = {"f32_neon", 1}, ITH_ATTN_FUNCTIONS};
