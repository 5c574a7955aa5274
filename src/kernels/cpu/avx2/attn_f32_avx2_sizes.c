/* SPDX-License-Identifier: Apache-2.0 */
/* The description of the kernel of attn_f32_avx2.h, compiled for the baseline (attn_layout.h). */
#include "attn_f32_avx2.h"

const ith_attn_kernel ith_k_attn_f32_avx2_4x24 = {.name = "f32_avx2",
                                                  .cpu = ITH_CPU_AVX2,
                                                  .logits = {"f32_avx2", 1},
                                                  .outputs = {"f32_avx2", 1},
                                                  ITH_ATTN_SIZES,
                                                  .pack = ith_attn_f32_avx2_pack,
                                                  .attend = ith_attn_f32_avx2_attend};
