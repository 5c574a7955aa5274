/* SPDX-License-Identifier: Apache-2.0 */
/* The noise levels (sigmas) of a run, and the time steps that the DiT gets at them. */
#ifndef ITH_WAN_SIGMAS_H
#define ITH_WAN_SIGMAS_H

#include "scheduler.h"

/* The choice of a solver and a list of sigmas for a run. */
typedef struct ith_sampling {
    ith_solver solver;
    ith_sigmas sigmas;
    int64_t steps; /* number of denoising steps, at least 1 */
    double shift;  /* above 0; replaces the shift of the scheduler's configuration */
} ith_sampling;

/* Fills in sigmas [steps + 1], rounded to f32, and timesteps [steps]. The last sigma is 0, unless the scheduler names
 * another one for this solver. ITH_ERR_ARGUMENT if a sigma is not below the sigma before it, as f32, because there are
 * too many steps. */
ith_status ith_sigmas_fill(ith_context *context, const ith_scheduler *scheduler, const ith_sampling *sampling,
                           double *sigmas, double *timesteps);

#endif
