/* SPDX-License-Identifier: Apache-2.0 */
/* The description of the kernel of attn_f16_amx.h, compiled for the baseline (attn_layout.h). */
#include "attn_f16_amx.h"

const ith_attn_kernel ith_k_attn_f16_amx_32x32 = {.name = "f16_amx",
                                                  .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16 | ITH_CPU_AMX_BF16,
                                                  .logits = {"bf16_amx", 4},
                                                  .outputs = {"bf16_amx", 3},
                                                  .pays = pays,
                                                  ITH_ATTN_SIZES,
                                                  .pack = ith_attn_f16_amx_pack,
                                                  .attend = ith_attn_f16_amx_attend};
