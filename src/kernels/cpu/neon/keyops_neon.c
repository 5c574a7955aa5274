/* SPDX-License-Identifier: Apache-2.0 */
/* Key operations (keyops.h) compiled for NEON. */
#include "vec_neon.h"

#include "../../keyops_tmpl.c"

const ith_keyops ith_keyops_neon = ITH_KEYOPS_TABLE("neon");
