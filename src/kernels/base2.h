/* SPDX-License-Identifier: Apache-2.0 */
/* Logits in base 2: e^x = 2^(x log2(e)). */
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

#endif
