/* SPDX-License-Identifier: Apache-2.0 */
/* Euler: x += (sigma' - sigma) v. */
#include "solver.h"

static int64_t predictions(const ith_scheduler *scheduler)
{
    (void)scheduler;
    return 0;
}

static void step_along(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    const float distance = (float)(sampler->sigmas[step + 1] - sampler->sigmas[step]);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < sampler->elements; i++)
        x[i] += distance * velocity[i];
}

/* x0 = x - sigma v, and x' = x + (sigma' - sigma) v, so x0 = x' - sigma' v. */
static void clean(const ith_sampler *sampler, int64_t step, const float *x, float *velocity)
{
    const float sigma = (float)sampler->sigmas[step + 1];
    for (int64_t i = 0; i < sampler->elements; i++)
        velocity[i] = x[i] - sigma * velocity[i];
}

const ith_solver_method ith_solver_euler = {predictions, false, step_along, clean};
