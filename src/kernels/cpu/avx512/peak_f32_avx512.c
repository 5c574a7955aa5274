/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of f32 multiply-adds in AVX-512 vectors (peak_f32_tmpl.c). */
#include "vec_avx512.h"

#include "../peak_f32_tmpl.c"

const ith_peak_row ith_k_peak_f32_avx512 = {.name = "f32_avx512", .cpu = ITH_CPU_AVX512, .work = work};
