/* Sampler (sampler.h).
 *
 * Grids, before the shift s -> shift s / (1 + (shift - 1) s):
 *   official   s_i = 0.999 - 0.999 i / N        diffusers   s_i = 1 - 0.999 i / N,        i < N; s_N = 0.
 *
 * Euler: x += (sigma' - sigma) v.
 *
 * UniPC, with alpha = 1 - sigma, lambda = ln(alpha / sigma), x0 = x - sigma v, m0 the x0 of the point the step starts
 * from, m1 that of the point before, m2 that of the point it ends at, h = lambda' - lambda, E = e^-h - 1 (B(h) of bh2),
 * r = (lambda_1 - lambda) / h, D = (m1 - m0) / r:
 *   predictor   x' = sigma'/sigma x - alpha' E (m0 + D/2)                           first order: without D
 *   corrector   x' = sigma'/sigma x - alpha' E (m0 + rho_0 D + rho_1 (m2 - m0))     first order: rho_1 = 1/2, without D
 * where rho solves [1 1; r 1] rho = (b_1, b_2), b_1 = (E/-h - 1)/E, b_2 = 2 (E/-h - 1 + h/2)/(-h E).
 * The corrector replaces x once m2 is known, with the order that the predictor had. The first and the last step are of
 * first order.
 *
 * Scalars are double, made from sigmas rounded to f32 (the reference keeps them so, and where sigma is near 1 the
 * rounding shows in lambda); elements are f32. */
#include "sampler.h"

#include "../base/size.h"

#include <math.h>

struct ith_sampler {
    ith_solver solver;
    int64_t steps, elements;
    double *sigmas;    /* [steps + 1] */
    double *timesteps; /* [steps] */
    int order;         /* of the last predictor */
    float *last;       /* UniPC: x before the last predictor */
    float *m0, *m1;    /* UniPC: x0 at the newest point and at the one before */
};

/* x' = along x + towards m0 + by_history (m1 - m0) + by_next (m2 - m0) */
typedef struct update {
    float along, towards, by_history, by_next;
} update;

static double lambda(double sigma)
{
    return log1p(-sigma) - log(sigma);
}

/* From sigmas[at] to sigmas[at + 1]. */
static update unipc_update(const double *sigmas, int64_t at, int order, bool corrector)
{
    double sigma = sigmas[at], next = sigmas[at + 1];
    if (next == 0) /* h is infinite: x' is x0 */
        return (update){.towards = 1};
    double start = lambda(sigma), h = lambda(next) - start, e = expm1(-h), scale = -(1 - next) * e;
    update u = {.along = (float)(next / sigma), .towards = (float)scale};
    double r = order == 2 ? (lambda(sigmas[at - 1]) - start) / h : 0;
    if (!corrector) {
        u.by_history = order == 2 ? (float)(scale * 0.5 / r) : 0;
        return u;
    }
    double rho_0 = 0, rho_1 = 0.5;
    if (order == 2) {
        double phi = e / -h - 1, b_1 = phi / e, b_2 = 2 * (phi / -h - 0.5) / e;
        rho_0 = (b_1 - b_2) / (1 - r);
        rho_1 = b_1 - rho_0;
        u.by_history = (float)(scale * rho_0 / r);
    }
    u.by_next = (float)(scale * rho_1);
    return u;
}

static void unipc_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    const float sigma = (float)sampler->sigmas[step];
    const bool correct = step > 0;
    update c = {0};
    if (correct)
        c = unipc_update(sampler->sigmas, step - 1, sampler->order, true);
    sampler->order = step == 0 || step == sampler->steps - 1 ? 1 : 2;
    const update p = unipc_update(sampler->sigmas, step, sampler->order, false);
    const bool second = sampler->order == 2;
    float *last = sampler->last, *m0 = sampler->m0, *m1 = sampler->m1;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < sampler->elements; i++) {
        float here = x[i], m2 = here - sigma * velocity[i], newest = correct ? m0[i] : 0;
        if (correct)
            here = c.along * last[i] + c.towards * newest + c.by_history * (m1[i] - newest) + c.by_next * (m2 - newest);
        x[i] = p.along * here + p.towards * m2 + (second ? p.by_history * (newest - m2) : 0);
        last[i] = here;
        m1[i] = newest;
        m0[i] = m2;
    }
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

/* The grid in double, the time steps from it, and the sigmas rounded to f32. */
static void fill_grid(ith_sampler *sampler, ith_sigmas grid, double shift)
{
    double first = grid == ITH_SIGMAS_OFFICIAL ? 0.999 : 1.0, end = grid == ITH_SIGMAS_OFFICIAL ? 0.0 : 0.001;
    double step = (end - first) / (double)sampler->steps;
    bool unipc = sampler->solver == ITH_SOLVER_UNIPC;
    for (int64_t i = 0; i < sampler->steps; i++) {
        double s = (double)i * step + first;
        double sigma = shift * s / (1 + (shift - 1) * s);
        if (unipc && i == 0 && fabs(sigma - 1) < 1e-6)
            sigma -= 1e-6; /* lambda would be infinite */
        sampler->sigmas[i] = (double)(float)sigma;
        sampler->timesteps[i] = unipc ? trunc(sigma * 1000) : (double)((float)sigma * 1000.0f);
    }
    sampler->sigmas[sampler->steps] = 0;
}

static ith_status check_grid(ith_context *context, const ith_sampler *sampler, double shift)
{
    for (int64_t i = 0; i < sampler->steps; i++)
        if (!(sampler->sigmas[i] > sampler->sigmas[i + 1]))
            return ith_fail(
                context, ITH_ERR_ARGUMENT,
                "%lld steps with shift %g: sigmas %lld and %lld are the same number; ask for fewer steps or "
                "a shift nearer to 1",
                (long long)sampler->steps, shift, (long long)i, (long long)i + 1);
    return ITH_OK;
}

static ith_status check_arguments(ith_context *context, ith_solver solver, ith_sigmas sigmas, int64_t steps,
                                  double shift)
{
    if (solver != ITH_SOLVER_UNIPC && solver != ITH_SOLVER_EULER)
        return ith_fail(context, ITH_ERR_ARGUMENT, "no solver number %d: there are unipc and euler", (int)solver);
    if (sigmas != ITH_SIGMAS_OFFICIAL && sigmas != ITH_SIGMAS_DIFFUSERS)
        return ith_fail(context, ITH_ERR_ARGUMENT, "no grid of sigmas number %d: there are official and diffusers",
                        (int)sigmas);
    if (steps < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld steps: there must be at least 1", (long long)steps);
    if (!(shift > 0) || !isfinite(shift))
        return ith_fail(context, ITH_ERR_ARGUMENT, "shift %g: it must be a finite number above 0", shift);
    return ITH_OK;
}

ith_status ith_sampler_create(ith_context *context, ith_solver solver, ith_sigmas sigmas, int64_t steps, double shift,
                              int64_t elements, ith_sampler **out)
{
    *out = NULL;
    ith_status status = check_arguments(context, solver, sigmas, steps, shift);
    if (status)
        return status;
    status = ITH_ERR_MEMORY;
    ith_sampler *sampler = ith_alloc_zero(context, 1, sizeof *sampler, "a sampler");
    if (!sampler)
        return status;
    sampler->solver = solver, sampler->steps = steps, sampler->elements = elements;
    sampler->sigmas = ith_alloc(context, steps < INT64_MAX ? steps + 1 : steps, sizeof(double), "sigmas");
    sampler->timesteps = sampler->sigmas ? ith_alloc(context, steps, sizeof(double), "time steps") : NULL;
    if (!sampler->timesteps)
        goto fail;
    if (solver == ITH_SOLVER_UNIPC) {
        sampler->last = ith_alloc(context, elements, sizeof(float), "the solver's last latents");
        sampler->m0 = sampler->last ? ith_alloc(context, elements, sizeof(float), "the solver's history") : NULL;
        sampler->m1 = sampler->m0 ? ith_alloc(context, elements, sizeof(float), "the solver's history") : NULL;
        if (!sampler->m1)
            goto fail;
    }
    fill_grid(sampler, sigmas, shift);
    status = check_grid(context, sampler, shift);
    if (status)
        goto fail;
    *out = sampler;
    return ITH_OK;
fail:
    ith_sampler_destroy(context, &sampler);
    return status;
}

void ith_sampler_destroy(ith_context *context, ith_sampler **sampler)
{
    if (!sampler || !*sampler)
        return;
    ith_free(context, (*sampler)->sigmas);
    ith_free(context, (*sampler)->timesteps);
    ith_free(context, (*sampler)->last);
    ith_free(context, (*sampler)->m0);
    ith_free(context, (*sampler)->m1);
    ith_free(context, *sampler);
    *sampler = NULL;
}

const double *ith_sampler_sigmas(const ith_sampler *sampler)
{
    return sampler->sigmas;
}

double ith_sampler_timestep(const ith_sampler *sampler, int64_t step)
{
    return sampler->timesteps[step];
}

int64_t ith_sampler_bytes(int64_t elements)
{
    return 3 * elements * (int64_t)sizeof(float);
}
