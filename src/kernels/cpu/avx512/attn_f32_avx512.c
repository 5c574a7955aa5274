/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with AVX-512: attn_f32_tmpl.c with the tile sizes for this instruction set. */
#include "exp2_short_avx512.h"
#include "vec_avx512.h"

#define ROWS 6
/* Vectors in a row of the tile: 24 registers hold sums, 4 hold queries, 1 holds a broadcast number. */
#define TILE_VECS 4
#define QUERIES (LANES * TILE_VECS)
#define EXP2_SHORT vec_exp2_short
/* With this many queries, q, o and a block of keys fill half of a cache of 2 MB at head size 128. */
enum { BLOCK_Q = 1024 };

#include "../attn_f32_tmpl.c"

const ith_attn_kernel ith_k_attn_f32_avx512_6x64 = {.name = "f32_avx512",
                                                    .cpu = ITH_CPU_AVX512,
                                                    .logits = {"f32_avx512", 1},
                                                    .outputs = {"f32_avx512", 1},
                                                    ITH_ATTN_FUNCTIONS};
