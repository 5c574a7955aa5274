/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in f32 with AVX2 and FMA. */
#include "tile_avx2.h"

/* A panel of 24 KB leaves room in a first-level cache of 32 KB for the rows of a tile. */
enum { DEPTH = 256 };

#include "../product_f32_tmpl.c"

const ith_product_kernel ith_k_product_f32_avx2_4x24 = {.name = "f32_avx2",
                                                        .cpu = ITH_CPU_AVX2,
                                                        .type = ITH_F32,
                                                        .parts = 1,
                                                        .rows = TILE_ROWS,
                                                        .columns = COLUMNS,
                                                        .lanes = LANES,
                                                        .step = STEP,
                                                        .depth = DEPTH,
                                                        .block_bytes = 192 * 1024,
                                                        .strip = 504,
                                                        .instructions = {{"f32_avx2", 1}},
                                                        ITH_PRODUCT_FUNCTIONS};
