/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of sigmas (sigmas.h).
 *
 * Sigmas before the shift s -> shift s / (1 + (shift - 1) s), with T = train_steps and N = steps, i < N:
 *   official, UniPC and Euler   s_i = (1 - 1/T) (1 - i / N)
 *   official, DPM-Solver++      s_i = 1 - i / N
 *   diffusers, UniPC            s_i = 1 - (1 - 1/T) i / N
 *   diffusers, DPM-Solver++     s_i = (1 - 1/T) (1 - i / N)
 *   diffusers, Euler            s_i from shift(1) to shift(1/T) in N equal parts, both ends included: shifted twice
 * The official list belongs to the solver of the run, the list of diffusers to the class of the model's scheduler. With
 * a shift_terminal, 1 - s is then scaled so that the last sigma before the end equals it. The end s_N is 0, unless
 * final_sigmas_type is "sigma_min". */
#include "sigmas.h"

#include "../../base/context.h"

#include <math.h>

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

/* Number i of `parts` + 1 equally spaced numbers, with the operations of numpy's linspace. */
static double spaced(double first, double end, int64_t parts, int64_t i)
{
    return parts > 0 && i == parts ? end : (double)i * ((end - first) / (double)parts) + first;
}

/* Returns sigma i of diffusers' list before the shift. */
static double unshifted_of_diffusers(const ith_scheduler *scheduler, const ith_sampling *sampling, int64_t i)
{
    const double train = (double)scheduler->train_steps;
    const int64_t steps = sampling->steps;
    if (scheduler->solver == ITH_SOLVER_UNIPC)
        return spaced(1, 1 / train, steps, i);
    if (scheduler->solver == ITH_SOLVER_DPMPP)
        return 1 - spaced(1, 1 / train, steps, steps - i);
    const double first = shifted_f32(1, sampling->shift) * train;
    const double end = shifted_f32((double)(1 / (float)scheduler->train_steps), sampling->shift) * train;
    return (steps == 1 ? first : spaced(first, end, steps - 1, i)) / train;
}

/* Returns sigma i before the shift. */
static double unshifted(const ith_scheduler *scheduler, const ith_sampling *sampling, int64_t i)
{
    if (sampling->sigmas == ITH_SIGMAS_DIFFUSERS)
        return unshifted_of_diffusers(scheduler, sampling, i);
    const double least = sampling->solver == ITH_SOLVER_DPMPP ? 0 : 1 / (double)scheduler->train_steps;
    return spaced(1 - least, 0, sampling->steps, i);
}

/* Whether the list of sigmas ends with its lowest sigma twice. */
static bool repeats_last(const ith_scheduler *scheduler, const ith_sampling *sampling)
{
    return sampling->solver == ITH_SOLVER_UNIPC && scheduler->unipc.stops_at_last;
}

/* Checks that each sigma, as an f32, is less than the sigma before it. */
static ith_status check(ith_context *context, const ith_scheduler *scheduler, const ith_sampling *sampling,
                        const double *sigmas)
{
    const int64_t steps = sampling->steps, last = steps - repeats_last(scheduler, sampling);
    if (isnan(sigmas[0]))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%lld steps with the scheduler's shift_terminal %g: the first sigma, 1, cannot be the last one "
                        "as well; ask for 2 steps",
                        (long long)steps, scheduler->shift_terminal);
    for (int64_t i = 0; i < last; i++) {
        if (i + 1 == steps && sigmas[steps] > 0 && !(sigmas[i] > sigmas[steps]))
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "%lld steps with shift %g: sigma %lld is %g, which is not above the last one, %g "
                            "(final_sigmas_type is sigma_min); ask for fewer steps or a larger shift",
                            (long long)steps, sampling->shift, (long long)i, sigmas[i], sigmas[steps]);
        if (!(sigmas[i] > sigmas[i + 1]))
            return ith_fail(
                context, ITH_ERR_ARGUMENT,
                "%lld steps with shift %g: sigmas %lld and %lld are the same number; ask for fewer steps or "
                "a shift nearer to 1",
                (long long)steps, sampling->shift, (long long)i, (long long)i + 1);
    }
    return ITH_OK;
}

/* Computes the sigmas in double, the time steps from these, and then rounds the sigmas to f32. */
ith_status ith_sigmas_fill(ith_context *context, const ith_scheduler *scheduler, const ith_sampling *sampling,
                           double *sigmas, double *timesteps)
{
    const int64_t steps = sampling->steps;
    const double train = (double)scheduler->train_steps;
    for (int64_t i = 0; i < steps; i++)
        sigmas[i] = shifted(unshifted(scheduler, sampling, i), sampling->shift);
    const double scale = (1 - sigmas[steps - 1]) / (1 - scheduler->shift_terminal);
    for (int64_t i = 0; i < steps && scheduler->shift_terminal > 0; i++)
        sigmas[i] = 1 - (1 - sigmas[i]) / scale;
    if (sampling->solver == ITH_SOLVER_UNIPC && fabs(sigmas[0] - 1) < 1e-6)
        sigmas[0] -= 1e-6; /* lambda of a sigma of 1 would be infinite */
    const bool whole = sampling->solver != ITH_SOLVER_EULER;
    for (int64_t i = 0; i < steps; i++) {
        timesteps[i] = whole ? trunc(sigmas[i] * train) : (double)((float)sigmas[i] * (float)train);
        sigmas[i] = (double)(float)sigmas[i];
    }
    sigmas[steps] = sampling->solver == ITH_SOLVER_DPMPP ? scheduler->dpmpp.last_sigma
                    : repeats_last(scheduler, sampling)  ? sigmas[steps - 1]
                                                         : 0;
    return check(context, scheduler, sampling, sigmas);
}
