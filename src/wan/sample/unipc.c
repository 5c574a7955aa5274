/* SPDX-License-Identifier: Apache-2.0 */
/* UniPC (arXiv:2302.04867), order 1 to 3, bh2, in the notation of solver.h. E is the function B(h) of the variant bh2.
 *
 * m' is the prediction x0 at the end of a step of order p. For k = 1 .. p - 1, r_k = (lambda_k - lambda) / h and
 * D_k = (m_k - m_0) / r_k:
 *
 *   predictor   x' = sigma'/sigma x - alpha' E (m_0 + sum rho_k D_k)
 *   corrector   x' = sigma'/sigma x - alpha' E (m_0 + sum rho_k D_k + rho' (m' - m_0))
 *
 * The coefficients rho solve the linear equations sum_k r_k^(j-1) rho_k = b_j, j = 1, 2, ..., with one equation for
 * each coefficient. rho' is one more coefficient, with r = 1. The right-hand sides are
 *
 *   b_j = j! phi_j / E,   phi_1 = E/-h - 1,   phi_(j+1) = phi_j/-h - 1/(j+1)!
 *
 * There are two exceptions: rho_1 of the predictor of order 2 and rho' of the corrector of order 1 are 1/2. The order
 * grows from 1 in the first steps and falls to 1 in the last steps. The corrector replaces x once m' is known. It has
 * the order of the predictor. The scheduler may leave steps uncorrected. */
#include "solver.h"

#include "../../base/size.h"

#include <math.h>

static int64_t predictions(const ith_scheduler *scheduler)
{
    return scheduler->unipc.order;
}

/* Solves sum_k r[k]^(j-1) rho[k] = b[j - 1], j = 1 .. count, for rho; count is 2 or 3. */
static void solve(int64_t count, const double *r, const double *b, double *rho)
{
    if (count == 2) {
        rho[0] = (b[0] * r[1] - b[1]) / (r[1] - r[0]);
        rho[1] = b[0] - rho[0];
    } else {
        for (int k = 0; k < 3; k++) {
            double p = r[(k + 1) % 3], q = r[(k + 2) % 3];
            rho[k] = (b[2] - (p + q) * b[1] + p * q * b[0]) / ((r[k] - p) * (r[k] - q));
        }
    }
}

/* Computes UniPC's coefficients rho for one step. In a corrector, the last coefficient weighs the newest prediction. */
static void fill_rho(int64_t order, bool corrector, double h, const double *r, double *rho)
{
    double e = expm1(-h), phi = e / -h - 1, factorial = 1, b[ITH_SCHEDULER_MOST_ORDER] = {0};
    for (int64_t j = 0; j < order; j++) {
        b[j] = phi * factorial / e;
        factorial *= (double)(j + 2);
        phi = phi / -h - 1 / factorial;
    }
    if (order == 1 || (order == 2 && !corrector))
        rho[0] = 0.5;
    else
        solve(corrector ? order : order - 1, r, b, rho);
}

/* The coefficients of UniPC's step from sigmas[at] to sigmas[at + 1]. */
static ith_solver_update update_of(const double *sigmas, int64_t at, int64_t order, bool corrector)
{
    double sigma = sigmas[at], next = sigmas[at + 1];
    if (next == 0) /* the step ends at sigma 0: h is infinite, and the result is the predicted x0 */
        return (ith_solver_update){.towards = 1};
    if (next == sigma)
        return (ith_solver_update){.along = 1};
    double start = ith_solver_lambda(sigma), h = ith_solver_lambda(next) - start, scale = -(1 - next) * expm1(-h);
    double r[ITH_SCHEDULER_MOST_ORDER], rho[ITH_SCHEDULER_MOST_ORDER];
    for (int64_t k = 1; k < order; k++)
        r[k - 1] = (ith_solver_lambda(sigmas[at - k]) - start) / h;
    r[order - 1] = 1;
    fill_rho(order, corrector, h, r, rho);
    ith_solver_update u = {.along = (float)(next / sigma), .towards = (float)scale};
    for (int64_t k = 1; k < order; k++)
        u.by_history[k - 1] = (float)(scale * rho[k - 1] / r[k - 1]);
    u.by_next = corrector ? (float)(scale * rho[order - 1]) : 0;
    return u;
}

static bool is_corrected(const ith_sampler *sampler, int64_t step)
{
    const ith_unipc_fields *fields = &sampler->scheduler.unipc;
    for (int64_t i = 0; i < fields->uncorrected_count; i++)
        if (fields->uncorrected[i] == step)
            return false;
    return step >= 0;
}

/* The order of the predictor of a step. It grows from 1 in the first steps and falls to 1 in the last steps. */
static int64_t order_of(const ith_sampler *sampler, int64_t step)
{
    return ith_min64(ith_min64(sampler->scheduler.unipc.order, sampler->steps - step), step + 1);
}

/* Corrects x at the beginning of the step, since the velocity there is known now, then predicts x at the end of the
 * step. */
static void step_along(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    const float sigma = (float)sampler->sigmas[step];
    const int64_t kept = sampler->scheduler.unipc.order;
    const bool correct = is_corrected(sampler, step - 1);
    const int64_t c_order = step > 0 ? order_of(sampler, step - 1) : 0;
    ith_solver_update c = {0};
    if (correct)
        c = update_of(sampler->sigmas, step - 1, c_order, true);
    const int64_t order = order_of(sampler, step);
    const ith_solver_update p = update_of(sampler->sigmas, step, order, false);
    float *last = sampler->last, *newest = sampler->m[kept - 1];
    const float *m0 = sampler->m[0], *m1 = sampler->m[1], *m2 = sampler->m[2];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < sampler->elements; i++) {
        float here = x[i], next = here - sigma * velocity[i], zero = step > 0 ? m0[i] : 0;
        float one = m1 ? m1[i] : 0, two = m2 ? m2[i] : 0;
        if (correct)
            here = ith_solver_predict(&c, c_order, last[i], zero, one, two) + c.by_next * (next - zero);
        x[i] = ith_solver_predict(&p, order, here, next, zero, one);
        last[i] = here;
        newest[i] = next;
    }
    ith_solver_rotate(sampler, kept);
}

const ith_solver_method ith_solver_unipc = {predictions, true, step_along, ith_solver_newest};
