/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of f32 tensors with AMX. Each number is split into three bf16 numbers (attn_split_tmpl.c). */
#define TYPE ITH_F32
#define PARTS 3

#include "attn_split_tmpl.c"

/* If more than a quarter of the elements in the tiles is padding of head_dim, other kernels are faster. */
static bool pays(int64_t head_dim)
{
    return head_dim >= STEP && 4 * head_dim >= 3 * ith_round_up(head_dim, STEP);
}

const ith_attn_kernel ith_k_attn_f32_amx_32x32 = {.name = "f32_amx",
                                                  .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16 | ITH_CPU_AMX_BF16,
                                                  .logits = {"bf16_amx", 6},
                                                  .outputs = {"bf16_amx", 6},
                                                  .pays = pays,
                                                  ITH_ATTN_FUNCTIONS};
