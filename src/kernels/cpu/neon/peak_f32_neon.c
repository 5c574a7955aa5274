/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of f32 multiply-adds in NEON vectors (peak_f32_tmpl.c). */
#include "vec_neon.h"

#include "../peak_f32_tmpl.c"

const ith_peak_row ith_k_peak_f32_neon = {.name = "f32_neon", .cpu = ITH_CPU_NEON, .work = work};
