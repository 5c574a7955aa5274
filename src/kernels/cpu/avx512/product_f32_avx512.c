/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in f32 with AVX-512. */
#include "tile_interleaved_avx512.h"

enum { DEPTH = 192 };

#include "../product_f32_tmpl.c"

const ith_product_kernel ith_k_product_f32_avx512_9x48 = {.cpu = ITH_CPU_AVX512,
                                                          .block_bytes = 144 * 1024,
                                                          .strip = 2064,
                                                          .interleaved_rows = TILE_INTERLEAVED,
                                                          .interleave = interleave,
                                                          PRODUCT_F32("f32_avx512")};
