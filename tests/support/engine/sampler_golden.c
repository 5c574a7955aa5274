/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/sampler_golden.h"

#include "support/compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
    const ith_tensor *tensor = ith_tensor_file_find(file, name);
    assert_non_null(tensor);
    return tensor;
}

void assert_sigmas(const ith_sampler *sampler, const char *run, const float *sigmas, const double *timesteps,
                   int64_t steps)
{
    const double *mine = ith_sampler_sigmas(sampler);
    for (int64_t i = 0; i <= steps; i++)
        if (mine[i] != (double)sigmas[i])
            fail_msg("%s: sigma %d is %.9g, not %.9g", run, (int)i, mine[i], (double)sigmas[i]);
    for (int64_t i = 0; i < steps; i++)
        if (ith_sampler_timestep(sampler, i) != timesteps[i])
            fail_msg("%s: time step %d is %.9g, not %.9g", run, (int)i, ith_sampler_timestep(sampler, i), timesteps[i]);
}

void replay_trajectory(ith_sampler *sampler, const ith_tensor_file *file, const char *run)
{
    enum { MOST = 24 };
    const ith_tensor *noise = ith_tensor_file_find(file, "noise"), *trace = golden_tensor(file, run, "x");
    int64_t steps = trace->shape[0], count = trace->shape[1];
    assert_true(count <= MOST);
    assert_sigmas(sampler, run, golden_tensor(file, run, "sigmas")->data, golden_tensor(file, run, "timesteps")->data,
                  steps);
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
