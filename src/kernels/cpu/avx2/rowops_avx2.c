/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations (rowops.h) compiled for AVX2. */
#include "../../rowops_tmpl.c"

const ith_rowops ith_rowops_avx2 = ITH_ROWOPS_TABLE("avx2");
