/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of F(2x2, 3x3) (winograd.h) in plain C. */
#include "../winograd_tmpl.c"

const ith_winograd ith_winograd_ref = ITH_WINOGRAD_TABLE("ref");
