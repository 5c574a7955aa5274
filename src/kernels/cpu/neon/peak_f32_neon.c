/* SPDX-License-Identifier: Apache-2.0 */
#include "vec_neon.h"

#include "../peak_f32_tmpl.c"

const ith_peak_row ith_k_peak_f32_neon = {.name = "f32_neon", .cpu = ITH_CPU_NEON, .work = work};
