/* SPDX-License-Identifier: Apache-2.0 */
/* Key operations (keyops.h) compiled for AVX2. */
#include "vec_avx2.h"

#include "../../keyops_tmpl.c"

const ith_keyops ith_keyops_avx2 = ITH_KEYOPS_TABLE("avx2");
