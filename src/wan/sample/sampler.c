/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of sigmas, and the steps of Euler and UniPC (sampler.h).
 *
 * Sigmas before the shift s -> shift s / (1 + (shift - 1) s), with T = train_steps and N = steps, i < N; s_N = 0:
 *   official              s_i = (1 - 1/T) (1 - i / N)
 *   diffusers, UniPC      s_i = 1 - (1 - 1/T) i / N
 *   diffusers, Euler      s_i from shift(1) to shift(1/T) in N equal parts, both ends included: shifted twice
 * With a shift_terminal, 1 - s is then scaled so that the last sigma before 0 equals it.
 *
 * Euler: x += (sigma' - sigma) v.
 *
 * UniPC, a step of order p from sigma to sigma', with alpha = 1 - sigma, lambda = ln(alpha / sigma), h = lambda' -
 * lambda and E = e^-h - 1 (the function B(h) of the variant bh2). x0 = x - sigma v is the prediction of the clean
 * latents: m_0 is x0 at the beginning of the step, m_k at the k-th point before it, and m' at the end of the step. For
 * k = 1 .. p - 1, r_k = (lambda_k - lambda) / h and D_k = (m_k - m_0) / r_k:
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
 * the order of the predictor. The scheduler may leave steps uncorrected.
 *
 * Scalars are computed in double from sigmas that are rounded to f32, as in the reference: near sigma = 1 this rounding
 * changes lambda. Elements are f32. */
#include "sampler.h"

#include "../../base/arena.h"
#include "../../base/context.h"
#include "../../base/size.h"

#include <math.h>
#include <string.h>

#define HISTORY (ITH_SCHEDULER_MOST_ORDER - 1)

struct ith_sampler {
    ith_scheduler scheduler;
    ith_solver solver;
    int64_t steps, elements;
    ith_arena arena; /* memory of the arrays */
    /* [steps + 1], rounded to f32 as in the reference; the last is 0, or equals the sigma before it if
     * scheduler.stops_at_last is set */
    double *sigmas;
    double *timesteps; /* [steps] */
    float *last;       /* UniPC: x before the latest predictor step */
    /* UniPC's history: m[0] is the newest prediction x0, m[1] the prediction before; NULL if not needed */
    float *m[ITH_SCHEDULER_MOST_ORDER];
};

/* The coefficients of a step of UniPC:
 *
 *   x' = along x + towards m_0 + sum_k by_history[k - 1] (m_k - m_0) + by_next (m' - m_0) */
typedef struct update {
    float along, towards, by_history[HISTORY], by_next;
} update;

/* lambda = ln((1 - sigma) / sigma) */
static double lambda(double sigma)
{
    return log1p(-sigma) - log(sigma);
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
static update unipc_update(const double *sigmas, int64_t at, int64_t order, bool corrector)
{
    double sigma = sigmas[at], next = sigmas[at + 1];
    if (next == 0) /* the step ends at sigma 0: h is infinite, and the result is the predicted x0 */
        return (update){.towards = 1};
    if (next == sigma)
        return (update){.along = 1};
    double start = lambda(sigma), h = lambda(next) - start, scale = -(1 - next) * expm1(-h);
    double r[ITH_SCHEDULER_MOST_ORDER], rho[ITH_SCHEDULER_MOST_ORDER];
    for (int64_t k = 1; k < order; k++)
        r[k - 1] = (lambda(sigmas[at - k]) - start) / h;
    r[order - 1] = 1;
    fill_rho(order, corrector, h, r, rho);
    update u = {.along = (float)(next / sigma), .towards = (float)scale};
    for (int64_t k = 1; k < order; k++)
        u.by_history[k - 1] = (float)(scale * rho[k - 1] / r[k - 1]);
    u.by_next = corrector ? (float)(scale * rho[order - 1]) : 0;
    return u;
}

static bool is_corrected(const ith_sampler *sampler, int64_t step)
{
    const ith_scheduler *scheduler = &sampler->scheduler;
    for (int64_t i = 0; i < scheduler->uncorrected_count; i++)
        if (scheduler->uncorrected[i] == step)
            return false;
    return step >= 0;
}

/* The order of the predictor of a step. It grows from 1 in the first steps and falls to 1 in the last steps. */
static int64_t order_of(const ith_sampler *sampler, int64_t step)
{
    return ith_min64(ith_min64(sampler->scheduler.order, sampler->steps - step), step + 1);
}

/* Moves each prediction x0 in the history one place back. The newest prediction gets the memory of the oldest. */
static void rotate_history(ith_sampler *sampler)
{
    int64_t order = sampler->scheduler.order;
    float *newest = sampler->m[order - 1];
    for (int64_t k = order - 1; k > 0; k--)
        sampler->m[k] = sampler->m[k - 1];
    sampler->m[0] = newest;
}

/* Corrects x at the beginning of the step, since the velocity there is known now, then predicts x at the end of the
 * step. */
static void unipc_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    const float sigma = (float)sampler->sigmas[step];
    const bool correct = is_corrected(sampler, step - 1);
    const int64_t c_order = step > 0 ? order_of(sampler, step - 1) : 0;
    update c = {0};
    if (correct)
        c = unipc_update(sampler->sigmas, step - 1, c_order, true);
    const int64_t order = order_of(sampler, step);
    const update p = unipc_update(sampler->sigmas, step, order, false);
    float *last = sampler->last, *newest = sampler->m[sampler->scheduler.order - 1];
    const float *m0 = sampler->m[0], *m1 = sampler->m[1], *m2 = sampler->m[2];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < sampler->elements; i++) {
        float here = x[i], next = here - sigma * velocity[i], zero = step > 0 ? m0[i] : 0;
        float one = m1 ? m1[i] : 0, two = m2 ? m2[i] : 0;
        if (correct)
            here = c.along * last[i] + c.towards * zero + (c_order > 1 ? c.by_history[0] * (one - zero) : 0) +
                   (c_order > 2 ? c.by_history[1] * (two - zero) : 0) + c.by_next * (next - zero);
        x[i] = p.along * here + p.towards * next + (order > 1 ? p.by_history[0] * (zero - next) : 0) +
               (order > 2 ? p.by_history[1] * (one - next) : 0);
        last[i] = here;
        newest[i] = next;
    }
    rotate_history(sampler);
}

static void euler_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    const float distance = (float)(sampler->sigmas[step + 1] - sampler->sigmas[step]);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < sampler->elements; i++)
        x[i] += distance * velocity[i];
}

void ith_sampler_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    if (sampler->solver == ITH_SOLVER_EULER)
        euler_step(sampler, step, velocity, x);
    else
        unipc_step(sampler, step, velocity, x);
}

/* Euler: x0 = x - sigma v, and x' = x + (sigma' - sigma) v, so x0 = x' - sigma' v. */
void ith_sampler_clean(const ith_sampler *sampler, int64_t step, const float *x, float *velocity)
{
    const float sigma = (float)sampler->sigmas[step + 1];
    const bool euler = sampler->solver == ITH_SOLVER_EULER;
    for (int64_t i = 0; i < sampler->elements; i++)
        velocity[i] = euler ? x[i] - sigma * velocity[i] : sampler->m[0][i];
}

/* ---- Sigmas ---------------------------------------------------------------------------------------------------- */

/* Shifts a sigma towards high noise. */
static double shifted(double s, double shift)
{
    return shift * s / (1 + (shift - 1) * s);
}

/* Shifts a sigma, with every operation rounded to f32, as FlowMatchEulerDiscreteScheduler computes the ends of its list
 * of sigmas. */
static double shifted_f32(double s, double shift)
{
    const float x = (float)s, numerator = (float)shift * x, excess = (float)(shift - 1) * x;
    return (double)(numerator / (1.0f + excess));
}

/* Returns sigma i before the shift, with its operations in the order of numpy's linspace. */
static double unshifted_sigma(const ith_scheduler *scheduler, const ith_sampling *sampling, int64_t i)
{
    double train = (double)scheduler->train_steps, first = 1, end = 1 / train;
    int64_t parts = sampling->steps;
    if (sampling->sigmas == ITH_SIGMAS_OFFICIAL) {
        first = 1 - end, end = 0;
    } else if (scheduler->solver == ITH_SOLVER_EULER) {
        first = shifted_f32(1, sampling->shift) * train;
        end = shifted_f32((double)(1 / (float)scheduler->train_steps), sampling->shift) * train;
        parts--;
        return (parts == 0 ? first : i == parts ? end : (double)i * ((end - first) / (double)parts) + first) / train;
    }
    return (double)i * ((end - first) / (double)parts) + first;
}

/* Computes the sigmas in double, the time steps from these, and then rounds the sigmas to f32. */
static void fill_sigmas(ith_sampler *sampler, const ith_sampling *sampling)
{
    const ith_scheduler *scheduler = &sampler->scheduler;
    const int64_t steps = sampling->steps;
    const bool unipc = sampling->solver == ITH_SOLVER_UNIPC;
    const double train = (double)scheduler->train_steps;
    double *sigmas = sampler->sigmas;
    for (int64_t i = 0; i < steps; i++)
        sigmas[i] = shifted(unshifted_sigma(scheduler, sampling, i), sampling->shift);
    const double scale = (1 - sigmas[steps - 1]) / (1 - scheduler->shift_terminal);
    for (int64_t i = 0; i < steps && scheduler->shift_terminal > 0; i++)
        sigmas[i] = 1 - (1 - sigmas[i]) / scale;
    if (unipc && fabs(sigmas[0] - 1) < 1e-6)
        sigmas[0] -= 1e-6; /* lambda of a sigma of 1 would be infinite */
    for (int64_t i = 0; i < steps; i++) {
        sampler->timesteps[i] = unipc ? trunc(sigmas[i] * train) : (double)((float)sigmas[i] * (float)train);
        sigmas[i] = (double)(float)sigmas[i];
    }
    sigmas[steps] = unipc && scheduler->stops_at_last ? sigmas[steps - 1] : 0;
}

/* Checks that each sigma, as an f32, is less than the sigma before it. */
static ith_status check_sigmas(ith_context *context, const ith_sampler *sampler, const ith_sampling *sampling)
{
    const int64_t last = sampler->steps - (sampler->sigmas[sampler->steps] > 0 ? 1 : 0);
    if (isnan(sampler->sigmas[0]))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%lld steps with the scheduler's shift_terminal %g: the first sigma, 1, cannot be the last one "
                        "as well; ask for 2 steps",
                        (long long)sampler->steps, sampler->scheduler.shift_terminal);
    for (int64_t i = 0; i < last; i++)
        if (!(sampler->sigmas[i] > sampler->sigmas[i + 1]))
            return ith_fail(
                context, ITH_ERR_ARGUMENT,
                "%lld steps with shift %g: sigmas %lld and %lld are the same number; ask for fewer steps or "
                "a shift nearer to 1",
                (long long)sampler->steps, sampling->shift, (long long)i, (long long)i + 1);
    return ITH_OK;
}

/* ---- Creation -------------------------------------------------------------------------------------------------- */

static ith_status check_sampling(ith_context *context, const ith_sampling *s)
{
    if (s->solver != ITH_SOLVER_UNIPC && s->solver != ITH_SOLVER_EULER)
        return ith_fail(context, ITH_ERR_ARGUMENT, "no solver number %d: there are unipc and euler", (int)s->solver);
    if (s->sigmas != ITH_SIGMAS_OFFICIAL && s->sigmas != ITH_SIGMAS_DIFFUSERS)
        return ith_fail(context, ITH_ERR_ARGUMENT, "no list of sigmas number %d: there are official and diffusers",
                        (int)s->sigmas);
    if (s->steps < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld steps: there must be at least 1", (long long)s->steps);
    if (!(s->shift > 0) || !isfinite(s->shift))
        return ith_fail(context, ITH_ERR_ARGUMENT, "shift %g: it must be a finite number above 0", s->shift);
    return ITH_OK;
}

static void lay_out(ith_sampler *sampler, ith_arena *arena)
{
    const int64_t steps = sampler->steps;
    sampler->sigmas = ith_arena_take(arena, steps < INT64_MAX ? steps + 1 : steps, sizeof(double));
    sampler->timesteps = ith_arena_take(arena, steps, sizeof(double));
    if (sampler->solver == ITH_SOLVER_EULER)
        return;
    sampler->last = ith_arena_take(arena, sampler->elements, sizeof(float));
    for (int64_t k = 0; k < sampler->scheduler.order; k++)
        sampler->m[k] = ith_arena_take(arena, sampler->elements, sizeof(float));
}

static ith_status build(ith_context *context, ith_sampler *sampler, const ith_sampling *sampling)
{
    lay_out(sampler, &sampler->arena);
    ith_status status = ith_arena_allocate(context, &sampler->arena, "a sampler's history");
    if (status)
        return status;
    lay_out(sampler, &sampler->arena);
    for (int64_t i = 0; i < ith_sampler_array_count(&sampler->scheduler, sampler->solver); i++)
        memset(ith_sampler_array(sampler, i), 0, (size_t)sampler->elements * sizeof(float));
    fill_sigmas(sampler, sampling);
    return check_sigmas(context, sampler, sampling);
}

ith_status ith_sampler_create(ith_context *context, const ith_scheduler *scheduler, const ith_sampling *sampling,
                              int64_t elements, ith_sampler **out)
{
    *out = NULL;
    ith_status status = check_sampling(context, sampling);
    if (status)
        return status;
    ith_sampler *sampler = ith_alloc_zero(context, 1, sizeof *sampler, "a sampler");
    if (!sampler)
        return ITH_ERR_MEMORY;
    sampler->scheduler = *scheduler;
    sampler->solver = sampling->solver, sampler->steps = sampling->steps, sampler->elements = elements;
    status = build(context, sampler, sampling);
    if (status)
        ith_sampler_destroy(context, &sampler);
    *out = sampler;
    return status;
}

void ith_sampler_destroy(ith_context *context, ith_sampler **sampler)
{
    if (!sampler || !*sampler)
        return;
    ith_free(context, (*sampler)->arena.base);
    ith_free(context, *sampler);
    *sampler = NULL;
}

double ith_sampler_timestep(const ith_sampler *sampler, int64_t step)
{
    return sampler->timesteps[step];
}

int64_t ith_sampler_array_count(const ith_scheduler *scheduler, ith_solver solver)
{
    return solver == ITH_SOLVER_EULER ? 0 : 1 + scheduler->order;
}

float *ith_sampler_array(ith_sampler *sampler, int64_t index)
{
    return index ? sampler->m[index - 1] : sampler->last;
}

int64_t ith_sampler_bytes(const ith_scheduler *scheduler, ith_solver solver, int64_t steps, int64_t elements)
{
    ith_sampler sampler = {.scheduler = *scheduler, .solver = solver, .steps = steps, .elements = elements};
    lay_out(&sampler, &sampler.arena);
    return sampler.arena.used_bytes + (int64_t)sizeof sampler + 2 * ITH_ALLOC_HEADER;
}
