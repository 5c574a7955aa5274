/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of f32 with AMX. Each number is split into three bf16 numbers (product_amx_tmpl.c). */
#define PARTS 3

enum { DEPTH = 640, CHUNK = 64 };

#include "product_amx_tmpl.c"

const ith_product_kernel ith_k_product_f32_amx_32x48 = {
    .name = "f32_amx",
    .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16 | ITH_CPU_AMX_BF16,
    .type = ITH_F32,
    .parts = PARTS,
    .rows = ROWS,
    .columns = COLUMNS,
    .lanes = COLUMNS,
    .step = STEP,
    .depth = DEPTH,
    .block_bytes = 1024 * 1024,
    .strip = 2064,
    .instructions = {{"bf16_amx", 3}, {"bf16_amx", 5}, {"bf16_amx", 6}},
    ITH_PRODUCT_FUNCTIONS};
