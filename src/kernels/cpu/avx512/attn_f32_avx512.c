/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with AVX-512: attn_f32_tmpl.c with a tile of 8 rows x 48 queries. 24 registers hold sums, 3
 * hold queries, 1 holds a broadcast number. The 9 rows of tile_avx512.h do not divide panels of keys. */
#include "exp2_short_avx512.h"
#include "vec_avx512.h"

enum { TILE_ROWS = 8, TILE_VECS = 3 };
#include "../tile_rows.h"

#define QUERIES (LANES * TILE_VECS)
#define EXP2_SHORT vec_exp2_short
/* With this many queries, q, o and a block of keys fill half of a cache of 2 MB at head size 128. */
enum { PANEL = 128, BLOCK_Q = 960 };

#include "../attn_f32_tmpl.c"

const ith_attn_kernel ith_k_attn_f32_avx512_8x48 = {.name = "f32_avx512",
                                                    .cpu = ITH_CPU_AVX512,
                                                    .logits = {"f32_avx512", 1},
                                                    .outputs = {"f32_avx512", 1},
                                                    ITH_ATTN_FUNCTIONS};
