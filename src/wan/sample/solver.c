/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the solvers with a history share (solver.h). */
#include "solver.h"

#include <math.h>
#include <string.h>

double ith_solver_lambda(double sigma)
{
    return log1p(-sigma) - log(sigma);
}

void ith_solver_rotate(ith_sampler *sampler, int64_t predictions)
{
    float *newest = sampler->m[predictions - 1];
    for (int64_t k = predictions - 1; k > 0; k--)
        sampler->m[k] = sampler->m[k - 1];
    sampler->m[0] = newest;
}

void ith_solver_newest(const ith_sampler *sampler, int64_t step, const float *x, float *velocity)
{
    (void)step;
    (void)x;
    memcpy(velocity, sampler->m[0], (size_t)sampler->elements * sizeof *velocity);
}
