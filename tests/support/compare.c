/* SPDX-License-Identifier: Apache-2.0 */
#include "support/compare.h"

#include <math.h>
#include <stdint.h>

double relative_l2(const float *x, const float *y, int64_t count)
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

double larger_error(double one, double other)
{
    return isnan(one) || one > other ? one : other;
}
