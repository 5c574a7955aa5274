/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations (rowops.h) compiled for AVX-512. */
#include "../../rowops_tmpl.c"

const ith_rowops ith_rowops_avx512 = ITH_ROWOPS_TABLE("avx512");
