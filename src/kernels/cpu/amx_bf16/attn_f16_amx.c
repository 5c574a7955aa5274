/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of f16 tensors with AMX. Each number is split into two bf16 numbers (attn_split_tmpl.c). */
#include "../avx512/exp2_short_avx512.h"

#define TYPE ITH_F16
#define PARTS 2
#define EXP2_SHORT vec_exp2_short

#include "attn_split_tmpl.c"

/* With a smaller head_dim, too much of each tile is padding, and other kernels are faster. */
static bool pays(int64_t head_dim)
{
    return head_dim >= 24;
}

const ith_attn_kernel ith_k_attn_f16_amx_32x32 = {.name = "f16_amx",
                                                  .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16 | ITH_CPU_AMX_BF16,
                                                  .logits = {"bf16_amx", 4},
                                                  .outputs = {"bf16_amx", 3},
                                                  .pays = pays,
                                                  ITH_ATTN_FUNCTIONS};
