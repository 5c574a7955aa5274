/* SPDX-License-Identifier: Apache-2.0 */
/* Key operations (keyops.h) compiled for any processor that the compiler's baseline runs on, one float at a time. */
#include "../../base/dtype.h"

#include <math.h>

typedef float vec;
enum { LANES = 1 };

static inline vec vec_load(const float *x)
{
    return *x;
}

static inline void vec_store(float *x, vec a)
{
    *x = a;
}

static inline vec vec_set(float x)
{
    return x;
}

static inline vec vec_add(vec a, vec b)
{
    return a + b;
}

static inline vec vec_sub(vec a, vec b)
{
    return a - b;
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return fmaf(a, b, c);
}

static inline vec vec_load_bf16(const uint16_t *x)
{
    return ith_f32_from_bf16(*x);
}

static inline vec vec_load_f16(const uint16_t *x)
{
    return ith_f32_from_f16(*x);
}

static inline void vec_transpose(vec x[LANES])
{
    (void)x;
}

#include "../keyops_tmpl.c"

const ith_keyops ith_keyops_ref = ITH_KEYOPS_TABLE("ref");
