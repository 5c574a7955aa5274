/* SPDX-License-Identifier: Apache-2.0 */
/* Samplers (sampler.h): their memory, and the choice of the solver's functions (solver.h). */
#include "sampler.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "solver.h"

#include <math.h>
#include <string.h>

static const ith_solver_method *const methods[] = {[ITH_SOLVER_UNIPC] = &ith_solver_unipc,
                                                   [ITH_SOLVER_EULER] = &ith_solver_euler,
                                                   [ITH_SOLVER_DPMPP] = &ith_solver_dpmpp};

bool ith_sampler_has(ith_solver solver)
{
    return (unsigned)solver < ITH_COUNT(methods) && methods[solver];
}

static ith_status check_sampling(ith_context *context, const ith_sampling *s)
{
    if (!ith_sampler_has(s->solver))
        return ith_fail(context, ITH_ERR_ARGUMENT, "no solver number %d: there are unipc, euler and dpm++",
                        (int)s->solver);
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
    const int64_t steps = sampler->steps, predictions = sampler->method->predictions(&sampler->scheduler);
    sampler->sigmas = ith_arena_take(arena, steps < INT64_MAX ? steps + 1 : steps, sizeof(double));
    sampler->timesteps = ith_arena_take(arena, steps, sizeof(double));
    if (sampler->method->keeps_last)
        sampler->last = ith_arena_take(arena, sampler->elements, sizeof(float));
    for (int64_t k = 0; k < predictions; k++)
        sampler->m[k] = ith_arena_take(arena, sampler->elements, sizeof(float));
}

static ith_status build(ith_context *context, ith_sampler *sampler, const ith_sampling *sampling)
{
    lay_out(sampler, &sampler->arena);
    ith_status status = ith_arena_allocate(context, &sampler->arena, "a sampler's history");
    if (status)
        return status;
    lay_out(sampler, &sampler->arena);
    for (int64_t i = 0; i < ith_sampler_array_count(&sampler->scheduler, sampling->solver); i++)
        memset(ith_sampler_array(sampler, i), 0, (size_t)sampler->elements * sizeof(float));
    return ith_sigmas_fill(context, &sampler->scheduler, sampling, sampler->sigmas, sampler->timesteps);
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
    sampler->scheduler = *scheduler, sampler->method = methods[sampling->solver];
    sampler->steps = sampling->steps, sampler->elements = elements;
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

void ith_sampler_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x)
{
    sampler->method->step(sampler, step, velocity, x);
}

void ith_sampler_clean(const ith_sampler *sampler, int64_t step, const float *x, float *velocity)
{
    sampler->method->clean(sampler, step, x, velocity);
}

int64_t ith_sampler_order(const ith_scheduler *scheduler, ith_solver solver)
{
    return methods[solver]->predictions(scheduler);
}

int64_t ith_sampler_array_count(const ith_scheduler *scheduler, ith_solver solver)
{
    return methods[solver]->keeps_last + ith_sampler_order(scheduler, solver);
}

float *ith_sampler_array(ith_sampler *sampler, int64_t index)
{
    if (sampler->method->keeps_last && index-- == 0)
        return sampler->last;
    return sampler->m[index];
}

const char *ith_sampler_array_name(ith_solver solver, int64_t index)
{
    static const char *const names[ITH_SAMPLER_MOST_ARRAYS] = {"last", "prediction_0", "prediction_1", "prediction_2"};
    return names[index + !(ith_sampler_has(solver) && methods[solver]->keeps_last)];
}

int64_t ith_sampler_bytes(const ith_scheduler *scheduler, ith_solver solver, int64_t steps, int64_t elements)
{
    ith_sampler sampler = {.scheduler = *scheduler, .method = methods[solver], .steps = steps, .elements = elements};
    lay_out(&sampler, &sampler.arena);
    return sampler.arena.used_bytes + (int64_t)sizeof sampler + 2 * ITH_ALLOC_HEADER;
}
