/* SPDX-License-Identifier: Apache-2.0 */
/* Relative L2 and its like, for tests that hold a result against an oracle. */
#ifndef ITH_TESTS_GOLDEN_H
#define ITH_TESTS_GOLDEN_H

#include <math.h>
#include <stdint.h>

/* |x - y| / |y|, in double; 0 for two empty or two zero arrays; NaN anywhere gives NaN. */
static inline double relative_l2(const float *x, const float *y, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)x[i] - (double)y[i];
        difference += d * d;
        norm += (double)y[i] * (double)y[i];
    }
    if (norm == 0)
        return difference == 0 ? 0 : INFINITY;
    return sqrt(difference / norm);
}

#endif
