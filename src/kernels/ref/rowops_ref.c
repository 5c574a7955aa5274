/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations (rowops.h) compiled for any processor that the compiler's baseline runs on. */
#include "../rowops_tmpl.c"

const ith_rowops ith_rowops_ref = ITH_ROWOPS_TABLE("ref");
