/* SPDX-License-Identifier: Apache-2.0 */
/* Logits in base 2, e^x = 2^(x log2(e)), and back. */
#ifndef ITH_KERNELS_BASE2_H
#define ITH_KERNELS_BASE2_H

#include <float.h>
#include <math.h>

/* Multiplies a bias or mask by log2(e), for logits in base 2. A finite number stays finite. x is compared, not y: gcc
 * 13 and 14 infer from an infinite y that x is infinite, and drop the condition. */
static inline float ith_to_base2(float x)
{
    const float largest = FLT_MAX / (float)M_LOG2E;
    float y = x * (float)M_LOG2E;
    y = x > largest ? FLT_MAX : y;
    y = x < -largest ? -FLT_MAX : y;
    return fabsf(x) > FLT_MAX ? x : y;
}

/* The lse of a row, in natural logarithms, from its offset m in base 2 and its sum l of probabilities, which is 0 if
 * all keys are hidden. If a logit is +infinity, kernels differ in l, and the lse is NaN. */
static inline float ith_lse(float m, float l)
{
    if (l == 0.0f)
        return -INFINITY;
    return m > FLT_MAX ? NAN : (m + log2f(l)) * (float)M_LN2;
}

#endif
