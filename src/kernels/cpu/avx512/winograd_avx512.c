/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of winograd.h, compiled for AVX-512. */
#include "../../winograd_tmpl.c"

const ith_winograd ith_winograd_avx512 = ITH_WINOGRAD_TABLE("avx512");
