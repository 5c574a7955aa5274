/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking (unpack.h) compiled for any processor that the compiler's baseline runs on. */
#define UNPACK ith_unpack_ref

#include "../unpack_tmpl.c"
