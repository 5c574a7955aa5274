/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in f32 with NEON. */
#include "tile_neon.h"

/* A panel of 24 KB leaves room in a first-level cache of 32 KB for the rows of a tile. */
enum { DEPTH = 256 };

#include "../product_f32_tmpl.c"

const ith_product_kernel ith_k_product_f32_neon_4x24 = {
    .cpu = ITH_CPU_NEON, .block_bytes = 192 * 1024, .strip = 504, PRODUCT_F32("f32_neon")};
