/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/sampler_golden.h"

#include "support/compare.h"
#include "support/engine/find_tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 24 }; /* the most elements of a sampler in these tests */

void flow_velocity(float *v, const float *x, double t, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double y = (double)x[i];
        v[i] = (float)(0.8 * y - 0.0005 * t + y / (1 + y * y));
    }
}

const ith_tensor *golden_tensor(const ith_tensor_file *file, const char *run, const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", run, what);
    return find_tensor(file, name);
}

/* The sigma at which step number `step` begins, or at which it ends with Euler: the clean latents of a step with
 * x = 0 and v = -1, x0 = x - sigma v. */
static double observed_sigma(ith_sampler *sampler, int64_t step)
{
    float x[MOST] = {0}, v[MOST];
    for (int i = 0; i < MOST; i++)
        v[i] = -1;
    ith_sampler_step(sampler, step, v, x);
    memset(x, 0, sizeof x);
    ith_sampler_clean(sampler, step, x, v);
    return (double)v[0];
}

void assert_sigmas(ith_sampler *sampler, ith_solver solver, const char *run, const float *sigmas,
                   const double *timesteps, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++) {
        const double want = (double)sigmas[solver == ITH_SOLVER_EULER ? i + 1 : i], mine = observed_sigma(sampler, i);
        if (mine != want)
            fail_msg("%s: the sigma of step %d is %.9g, not %.9g", run, (int)i, mine, want);
        if (ith_sampler_timestep(sampler, i) != timesteps[i])
            fail_msg("%s: time step %d is %.9g, not %.9g", run, (int)i, ith_sampler_timestep(sampler, i), timesteps[i]);
    }
}

void replay_trajectory(ith_sampler *sampler, ith_solver solver, const ith_tensor_file *file, const char *run)
{
    const ith_tensor *noise = ith_tensor_file_find(file, "noise"), *trace = golden_tensor(file, run, "x");
    int64_t steps = trace->shape[0], count = trace->shape[1];
    assert_true(count <= MOST);
    assert_sigmas(sampler, solver, run, golden_tensor(file, run, "sigmas")->data,
                  golden_tensor(file, run, "timesteps")->data, steps);
    for (int again = 0; again < 2; again++) {
        float x[MOST], v[MOST];
        memcpy(x, noise->data, (size_t)count * sizeof *x);
        for (int64_t step = 0; step < steps; step++) {
            flow_velocity(v, x, ith_sampler_timestep(sampler, step), count);
            ith_sampler_step(sampler, step, v, x);
            double error = relative_l2(x, (const float *)trace->data + step * count, count);
            if (!(error <= 1e-6))
                fail_msg("%s, step %d of %d: relative error %g", run, (int)step, (int)steps, error);
        }
    }
}
