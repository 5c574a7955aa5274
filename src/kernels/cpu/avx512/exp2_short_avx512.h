/* SPDX-License-Identifier: Apache-2.0 */
/* 2^x for probabilities that are rounded to 16 bits. The polynomial has one term less than in vec_exp2. */
#ifndef ITH_KERNELS_EXP2_SHORT_AVX512_H
#define ITH_KERNELS_EXP2_SHORT_AVX512_H

#include "vec_avx512.h"

/* Returns unit * 2^x for a constant `unit`, as 2^floor(x) times a polynomial of degree 4 in x - floor(x), whose value
 * at 0 is unit; minimax in relative error (3e-6). */
static inline vec vec_exp2_short_times(vec x, float unit)
{
    vec f = vec_fraction(x);
    vec p = vec_fma(f, vec_set(unit * 1.3426700892e-2f), vec_set(unit * 5.2242447540e-2f));
    p = vec_fma(p, f, vec_set(unit * 2.4128021723e-1f));
    p = vec_fma(p, f, vec_set(unit * 6.9304484333e-1f));
    p = vec_fma(p, f, vec_set(unit));
    return vec_scale(p, x);
}

static inline vec vec_exp2_short(vec x)
{
    return vec_exp2_short_times(x, 1.0f);
}

#endif
