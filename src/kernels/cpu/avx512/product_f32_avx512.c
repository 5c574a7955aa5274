/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in f32 with AVX-512. */
#include "tile_avx512.h"

enum { DEPTH = 192 };

#include "../product_f32_tmpl.c"

const ith_product_kernel ith_k_product_f32_avx512_8x48 = {.name = "f32_avx512",
                                                          .cpu = ITH_CPU_AVX512,
                                                          .type = ITH_F32,
                                                          .parts = 1,
                                                          .rows = TILE_ROWS,
                                                          .columns = COLUMNS,
                                                          .lanes = LANES,
                                                          .step = STEP,
                                                          .depth = DEPTH,
                                                          .block_bytes = 192 * 1024,
                                                          .strip = 960,
                                                          .instructions = {{"f32_avx512", 1}},
                                                          ITH_PRODUCT_FUNCTIONS};
