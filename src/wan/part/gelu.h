/* SPDX-License-Identifier: Apache-2.0 */
/* GELU as it is defined (arXiv:1606.08415), without the approximation by tanh that the transformer's and the text
 * encoder's feed-forward networks use. */
#ifndef ITH_WAN_GELU_H
#define ITH_WAN_GELU_H

#include <math.h>
#include <stdint.h>

/* y = x / 2 (1 + erf(x / sqrt(2))) for n numbers. y may be x. */
static inline void ith_gelu(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678118654752f));
}

#endif
