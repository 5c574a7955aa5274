/* Solvers of the flow ODE dx/dsigma = v: UniPC (arXiv:2302.04867, order 2, bh2, predicting x0) and Euler, on the
 * "official" or the "diffusers" grid of sigmas. Element by element, so that a rank steps its own share of the latents.
 */
#ifndef ITH_WAN_SAMPLER_H
#define ITH_WAN_SAMPLER_H

#include "../base/context.h"

typedef enum ith_solver { ITH_SOLVER_UNIPC = 1, ITH_SOLVER_EULER } ith_solver;
typedef enum ith_sigmas { ITH_SIGMAS_OFFICIAL = 1, ITH_SIGMAS_DIFFUSERS } ith_sigmas;

typedef struct ith_sampler ith_sampler;

/* For `elements` numbers of latent. steps >= 1, shift > 0. ITH_ERR_ARGUMENT for these, and where steps lie so close
 * that two sigmas are the same in f32. */
ith_status ith_sampler_create(ith_context *context, ith_solver solver, ith_sigmas sigmas, int64_t steps, double shift,
                              int64_t elements, ith_sampler **out);
void ith_sampler_destroy(ith_context *context, ith_sampler **sampler);

/* steps + 1 values, the last 0; each a float, as in the reference. */
const double *ith_sampler_sigmas(const ith_sampler *sampler);
/* What the DiT is given at step i: sigma * 1000, cut to an integer for UniPC, as it is for Euler. */
double ith_sampler_timestep(const ith_sampler *sampler, int64_t step);
/* x at sigma[step] and the velocity there -> x at sigma[step + 1], in place. Steps are taken in order from 0, which
 * forgets any earlier run. */
void ith_sampler_step(ith_sampler *sampler, int64_t step, const float *velocity, float *x);

/* The most bytes that a sampler of so many elements holds (UniPC's; Euler keeps none), apart from its sigmas. */
int64_t ith_sampler_bytes(int64_t elements);

#endif
