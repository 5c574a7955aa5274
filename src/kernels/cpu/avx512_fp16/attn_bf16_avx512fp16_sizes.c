/* SPDX-License-Identifier: Apache-2.0 */
/* The description of the kernel of attn_bf16_avx512fp16.h, compiled for the baseline (attn_layout.h). */
#include "attn_bf16_avx512fp16.h"

const ith_attn_kernel ith_k_attn_bf16_avx512fp16_6x64 = {.name = "bf16_avx512fp16",
                                                         .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_FP16,
                                                         .logits = {"f32_avx512", 1},
                                                         .outputs = {"f16_avx512fp16", 1},
                                                         .pays = pays,
                                                         ITH_ATTN_SIZES,
                                                         .pack = ith_attn_bf16_avx512fp16_pack,
                                                         .attend = ith_attn_bf16_avx512fp16_attend};
