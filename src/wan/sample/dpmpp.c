/* SPDX-License-Identifier: Apache-2.0 */
/* DPM-Solver++ (arXiv:2211.01095), multistep, order 1 to 3, in the notation of solver.h.
 *
 * With h_0 = lambda - lambda_1, h_1 = lambda_1 - lambda_2 and r_k = h_k / h, the differences of the predictions are
 *
 *   d_0 = (m_0 - m_1) / r_0,  d_1 = (m_1 - m_2) / r_1,  d = (d_0 - d_1) / (r_0 + r_1)
 *
 * and the steps are
 *
 *   order 1             x' = sigma'/sigma x - alpha' E m_0
 *   order 2, midpoint   ... - alpha' E / 2 d_0
 *   order 2, Heun       ... + alpha' (E/h + 1) d_0
 *   order 3             ... + alpha' (E/h + 1) (d_0 + r_0 d) - alpha' ((E + h)/h^2 - 1/2) d
 *
 * The order grows from 1 in the first steps. It falls to 1 in the last step if this step ends at 0, if euler_at_final
 * is set, or if a short run has lower_order_final; such a run has at most order 2 in the step before. */
#include "solver.h"

#include "../../base/size.h"

#include <math.h>

#define SHORT_RUN 15 /* lower_order_final belongs to runs with fewer steps */

static int64_t predictions(const ith_scheduler *scheduler)
{
    return scheduler->dpmpp.order;
}

static int64_t order_of(const ith_sampler *sampler, int64_t step)
{
    const ith_dpmpp_fields *fields = &sampler->scheduler.dpmpp;
    const bool falls = fields->lower_order_final && sampler->steps < SHORT_RUN;
    const int64_t left = sampler->steps - step, order = ith_min64(fields->order, step + 1);
    if (left == 1 && (falls || fields->euler_at_final || sampler->sigmas[step + 1] == 0))
        return 1;
    return left == 2 && falls ? ith_min64(order, 2) : order;
}

/* The coefficients of the step from sigmas[at] to sigmas[at + 1]. A sigma of 1 has the lambda -infinity, and a sigma of
 * 0 the lambda infinity, without harm: a difference over an infinite interval vanishes. */
static ith_solver_update update_of(const double *sigmas, int64_t at, int64_t order, bool heun)
{
    const double here = ith_solver_lambda(sigmas[at]), h = ith_solver_lambda(sigmas[at + 1]) - here;
    const double e = expm1(-h), alpha = 1 - sigmas[at + 1], slope = alpha * (e / h + 1);
    ith_solver_update u = {.along = (float)(sigmas[at + 1] / sigmas[at]), .towards = (float)(-alpha * e)};
    if (order == 1)
        return u;
    const double before = ith_solver_lambda(sigmas[at - 1]), r0 = (here - before) / h;
    double by_d0 = heun ? slope : -0.5 * alpha * e, by_d1 = 0, r1 = 1;
    if (order == 3) {
        r1 = (before - ith_solver_lambda(sigmas[at - 2])) / h;
        by_d1 = (alpha * ((e + h) / (h * h) - 0.5) - slope * r0) / (r0 + r1);
        by_d0 = slope - by_d1;
    }
    u.by_history[0] = (float)(by_d1 / r1 - by_d0 / r0);
    u.by_history[1] = (float)(-by_d1 / r1);
    return u;
}

static void step_along(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    const ith_dpmpp_fields *fields = &sampler->scheduler.dpmpp;
    const float sigma = (float)sampler->sigmas[step];
    const int64_t order = order_of(sampler, step);
    const ith_solver_update u = update_of(sampler->sigmas, step, order, fields->heun);
    float *newest = sampler->m[fields->order - 1];
    const float *m1 = order > 1 ? sampler->m[0] : NULL, *m2 = order > 2 ? sampler->m[1] : NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < sampler->elements; i++) {
        const float m0 = x[i] - sigma * velocity[i];
        x[i] = ith_solver_predict(&u, order, x[i], m0, m1 ? m1[i] : 0, m2 ? m2[i] : 0);
        newest[i] = m0;
    }
    ith_solver_rotate(sampler, fields->order);
}

const ith_solver_method ith_solver_dpmpp = {predictions, false, step_along, ith_solver_newest};
