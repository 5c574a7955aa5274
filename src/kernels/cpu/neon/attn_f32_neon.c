/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with NEON: attn_f32_tmpl.c with the tile of this instruction set. */
#include "tile_neon.h"

#include "../tile_strided.h"

#define QUERIES (LANES * TILE_VECS)
enum { PANEL = 256, BLOCK_Q = 192 };

#include "../attn_f32_tmpl.c"

const ith_attn_kernel ith_k_attn_f32_neon_4x24 = {
    .name = "f32_neon", .cpu = ITH_CPU_NEON, .logits = {"f32_neon", 1}, .outputs = {"f32_neon", 1}, ITH_ATTN_FUNCTIONS};
