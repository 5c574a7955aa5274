/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in f32 with NEON. */
#include "tile_neon.h"

/* As for AVX2: a panel of 24 KB leaves room in a first-level cache of 32 KB. */
enum { DEPTH = 256 };

#include "../product_f32_tmpl.c"

const ith_product_kernel ith_k_product_f32_neon_4x24 = {.name = "f32_neon",
                                                        .cpu = ITH_CPU_NEON,
                                                        .type = ITH_F32,
                                                        .parts = 1,
                                                        .rows = TILE_ROWS,
                                                        .columns = COLUMNS,
                                                        .lanes = LANES,
                                                        .step = STEP,
                                                        .depth = DEPTH,
                                                        .block_bytes = 192 * 1024,
                                                        .strip = 504,
                                                        .instructions = {{"f32_neon", 1}},
                                                        ITH_PRODUCT_FUNCTIONS};
