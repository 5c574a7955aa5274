/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a sampler, and the functions of the solvers that step it. A multistep solver remembers its latest
 * predictions of the clean latents, x0 = x - sigma v: m_0 at the beginning of the step, and m_k at the k-th point
 * before it. It steps from sigma to sigma', with alpha = 1 - sigma, lambda = ln(alpha / sigma), h = lambda' - lambda
 * and E = e^-h - 1, by
 *
 *   x' = sigma'/sigma x - alpha' E m_0 + sum_k by_history[k - 1] (m_k - m_0)
 *
 * Scalars are computed in double from sigmas that are rounded to f32, as in the reference: near sigma = 1 this rounding
 * changes lambda. Elements are f32. */
#ifndef ITH_WAN_SOLVER_H
#define ITH_WAN_SOLVER_H

#include "../../base/arena.h"
#include "sigmas.h"

#define ITH_SOLVER_HISTORY (ITH_SCHEDULER_MOST_ORDER - 1)

typedef struct ith_sampler ith_sampler;
/* A sampler of one rank. */
struct ith_sampler {
    ith_scheduler scheduler;
    const struct ith_solver_method *method;
    int64_t steps, elements;
    ith_arena arena;   /* memory of the arrays */
    double *sigmas;    /* [steps + 1], rounded to f32 as in the reference */
    double *timesteps; /* [steps] */
    float *last;       /* UniPC: x before the latest predictor step */
    /* The history: m[0] is the newest prediction x0, m[1] the prediction before; NULL if not needed */
    float *m[ITH_SCHEDULER_MOST_ORDER];
};

/* The functions of a solver. */
typedef struct ith_solver_method {
    int64_t (*predictions)(const ith_scheduler *scheduler); /* the number of predictions in the history */
    bool keeps_last;                                        /* uses the array `last` */
    void (*step)(ith_sampler *sampler, int64_t step, const float *velocity, float *x);        /* as ith_sampler_step */
    void (*clean)(const ith_sampler *sampler, int64_t step, const float *x, float *velocity); /* as ith_sampler_clean */
} ith_solver_method;

extern const ith_solver_method ith_solver_unipc, ith_solver_euler, ith_solver_dpmpp;

/* The coefficients of a step:
 *
 *   x' = along x + towards m_0 + sum_k by_history[k - 1] (m_k - m_0) + by_next (m' - m_0)
 *
 * m' is the prediction at the end of the step, which only the corrector of UniPC knows. */
typedef struct ith_solver_update {
    float along, towards, by_history[ITH_SOLVER_HISTORY], by_next;
} ith_solver_update;

/* lambda = ln((1 - sigma) / sigma) */
double ith_solver_lambda(double sigma);
/* Moves each prediction x0 in the history one place back. The newest prediction gets the memory of the oldest. */
void ith_solver_rotate(ith_sampler *sampler, int64_t predictions);
/* Member `clean` of a solver with a history. */
void ith_solver_newest(const ith_sampler *sampler, int64_t step, const float *x, float *velocity);

/* One element of a step of order `order`, without by_next. */
static inline float ith_solver_predict(const ith_solver_update *u, int64_t order, float x, float m0, float m1, float m2)
{
    return u->along * x + u->towards * m0 + (order > 1 ? u->by_history[0] * (m1 - m0) : 0) +
           (order > 2 ? u->by_history[1] * (m2 - m0) : 0);
}

#endif
