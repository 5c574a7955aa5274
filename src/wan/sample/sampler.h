/* SPDX-License-Identifier: Apache-2.0 */
/* Solvers of the flow ODE dx/dsigma = v: UniPC (arXiv:2302.04867, order 1 to 3, bh2, predicting x0) and Euler. Element
 * by element, so that a rank steps its own share of the latents. */
#ifndef ITH_WAN_SAMPLER_H
#define ITH_WAN_SAMPLER_H

#include "scheduler.h"

/* What a run asks for. */
typedef struct ith_sampling {
    ith_solver solver;
    ith_sigmas sigmas;
    int64_t steps; /* >= 1 */
    double shift;  /* > 0; the scheduler's own is not looked at */
} ith_sampling;

typedef struct ith_sampler ith_sampler;

/* For `elements` numbers of latent. ITH_ERR_ARGUMENT for a wrong sampling, and where steps lie so close that two sigmas
 * are the same in f32. */
ith_status ith_sampler_create(ith_context *context, const ith_scheduler *scheduler, const ith_sampling *sampling,
                              int64_t elements, ith_sampler **out);
void ith_sampler_destroy(ith_context *context, ith_sampler **sampler);

/* steps + 1 values; the last is 0, or the one before it again if the scheduler stops there. Each is a float, as in the
 * reference. */
const double *ith_sampler_sigmas(const ith_sampler *sampler);
/* What the DiT is given at step i: sigma times the scheduler's train_steps, cut to an integer for UniPC, as it is for
 * Euler. */
double ith_sampler_timestep(const ith_sampler *sampler, int64_t step);
/* x at sigma[step] and the velocity there -> x at sigma[step + 1], in place. Steps are taken in order from 0, which
 * forgets any earlier run. */
void ith_sampler_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x);

/* The bytes that such a sampler of so many elements holds, apart from its sigmas. */
int64_t ith_sampler_bytes(const ith_scheduler *scheduler, ith_solver solver, int64_t elements);

#endif
