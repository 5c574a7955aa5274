/* SPDX-License-Identifier: Apache-2.0 */
/* The trajectories of tools/make_sampler_golden.py, make_scheduler_golden.py and make_dpmpp_golden.py: solvers of
 * diffusers and of the published code on the velocity v(x, t) = 0.8 x - 0.0005 t + x / (1 + x^2). */
#ifndef ITH_TESTS_SAMPLER_GOLDEN_H
#define ITH_TESTS_SAMPLER_GOLDEN_H

#include "wan/sample/sampler.h"

#include <ithaca/files.h>

void flow_velocity(float *v, const float *x, double t, int64_t count);

/* The tensor RUN.WHAT of the file, which must be there. */
const ith_tensor *golden_tensor(const ith_tensor_file *file, const char *run, const char *what);
/* Checks that the time steps and the sigmas of a sampler of at most 24 elements equal these. Euler's first sigma,
 * and the last sigma of the other solvers, are not checked. `run`: the name of the run in messages. */
void assert_sigmas(ith_sampler *sampler, ith_solver solver, const char *run, const float *sigmas,
                   const double *timesteps, int64_t steps);
/* Checks the sigmas, and steps the file's noise along the trajectory `run`, twice with the same sampler. Each step must
 * agree with the file to 1e-6. */
void replay_trajectory(ith_sampler *sampler, ith_solver solver, const ith_tensor_file *file, const char *run);

#endif
