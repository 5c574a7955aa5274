/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of winograd.h, in plain C. */
#include "../winograd_tmpl.c"

const ith_winograd ith_winograd_ref = ITH_WINOGRAD_TABLE("ref");
