/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of winograd.h, compiled for AVX2. */
#include "../../winograd_tmpl.c"

const ith_winograd ith_winograd_avx2 = ITH_WINOGRAD_TABLE("avx2");
