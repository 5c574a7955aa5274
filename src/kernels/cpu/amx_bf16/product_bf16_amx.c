/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of bf16 with AMX. */
#define PARTS 1

enum { DEPTH = 1792, CHUNK = 320 };

#include "product_amx_tmpl.c"

const ith_product_kernel ith_k_product_bf16_amx_32x48 = {.name = "bf16_amx",
                                                         .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16 | ITH_CPU_AMX_BF16,
                                                         .type = ITH_BF16,
                                                         .parts = 1,
                                                         .rows = ROWS,
                                                         .columns = COLUMNS,
                                                         .lanes = COLUMNS,
                                                         .step = STEP,
                                                         .depth = DEPTH,
                                                         .block_bytes = 272 * 1024,
                                                         .strip = 4128,
                                                         .span = 528,
                                                         .block_steps = CHUNK,
                                                         .instructions = {{"bf16_amx", 1}},
                                                         ITH_PRODUCT_FUNCTIONS};
