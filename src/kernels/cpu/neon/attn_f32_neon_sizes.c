/* SPDX-License-Identifier: Apache-2.0 */
/* The description of the kernel of attn_f32_neon.h, compiled for the baseline (attn_layout.h). */
#include "attn_f32_neon.h"

const ith_attn_kernel ith_k_attn_f32_neon_4x24 = {.name = "f32_neon",
                                                  .cpu = ITH_CPU_NEON,
                                                  .logits = {"f32_neon", 1},
                                                  .outputs = {"f32_neon", 1},
                                                  ITH_ATTN_SIZES,
                                                  .pack = ith_attn_f32_neon_pack,
                                                  .attend = ith_attn_f32_neon_attend};
