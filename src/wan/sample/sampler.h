/* SPDX-License-Identifier: Apache-2.0 */
/* Solvers of the flow ODE dx/dsigma = v: UniPC (arXiv:2302.04867, order 1 to 3, bh2, predicting x0), DPM-Solver++
 * (arXiv:2211.01095, multistep, order 1 to 3) and Euler. They work element by element, so each rank steps its own share
 * of the latents without communication. */
#ifndef ITH_WAN_SAMPLER_H
#define ITH_WAN_SAMPLER_H

#include "sigmas.h"

typedef struct ith_sampler ith_sampler;

/* Whether `solver` is one of the solvers: AUTO is not. */
bool ith_sampler_has(ith_solver solver);
/* Makes a sampler for `elements` elements of latents. ITH_ERR_ARGUMENT for illegal members of `sampling`, and if two
 * sigmas are equal in f32 because there are too many steps. */
ith_status ith_sampler_create(ith_context *context, const ith_scheduler *scheduler, const ith_sampling *sampling,
                              int64_t elements, ith_sampler **out);
void ith_sampler_destroy(ith_context *context, ith_sampler **sampler);

/* The time step that the DiT gets at a denoising step: sigma * train_steps, truncated to an integer, except with
 * Euler. */
double ith_sampler_timestep(const ith_sampler *sampler, int64_t step);
/* Moves x from sigma[step] to sigma[step + 1] in place. velocity: the DiT's output at sigma[step]. Steps are taken in
 * order; step 0 clears the history. */
void ith_sampler_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x);

/* After ith_sampler_step with these arguments: replaces the velocity of the step by the clean latents x0 to which it
 * pointed. */
void ith_sampler_clean(const ith_sampler *sampler, int64_t step, const float *x, float *velocity);

/* The arrays with which a sampler remembers earlier steps, each as long as the latents: a run that is saved keeps them.
 * Euler has none. Their contents are defined between two steps; before step 0 they are 0. The functions return
 * the number of arrays, array number `index`, and its name in files. */
#define ITH_SAMPLER_MOST_ARRAYS (1 + ITH_SCHEDULER_MOST_ORDER)
int64_t ith_sampler_array_count(const ith_scheduler *scheduler, ith_solver solver);
float *ith_sampler_array(ith_sampler *sampler, int64_t index);
const char *ith_sampler_array_name(ith_solver solver, int64_t index);

/* The order of a solver that remembers predictions; 0: Euler. */
int64_t ith_sampler_order(const ith_scheduler *scheduler, ith_solver solver);
/* The bytes of a sampler's arrays: its sigmas, time steps and history. */
int64_t ith_sampler_bytes(const ith_scheduler *scheduler, ith_solver solver, int64_t steps, int64_t elements);

#endif
