/* SPDX-License-Identifier: Apache-2.0 */
/* Key operations (keyops.h) compiled for AVX-512. */
#include "vec_avx512.h"

#include "../../keyops_tmpl.c"

const ith_keyops ith_keyops_avx512 = ITH_KEYOPS_TABLE("avx512");
