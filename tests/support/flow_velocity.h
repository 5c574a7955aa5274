/* SPDX-License-Identifier: Apache-2.0 */
/* The velocity of tools/make_sampler_golden.py. */
#ifndef ITH_TESTS_FLOW_VELOCITY_H
#define ITH_TESTS_FLOW_VELOCITY_H

#include <stdint.h>

static inline void flow_velocity(float *v, const float *x, double t, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double y = (double)x[i];
        v[i] = (float)(0.8 * y - 0.0005 * t + y / (1 + y * y));
    }
}

#endif
