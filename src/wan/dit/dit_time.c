/* SPDX-License-Identifier: Apache-2.0 */
/* The time embedding, and the shifts, scales and gates that follow from it:
 *
 *   e = w_2 silu(w_1 sinusoid(t) + b_1) + b_2,   e0 = w_t silu(e) + b_t
 *   sinusoid(t) = (cos(t f_i), sin(t f_i)) with f_i = 10000^(-i / half), i < half
 *
 * Each batch entry has its own time step t, and so its own row. If some tokens are known, a row of time step 0 follows
 * each of them (ith_dit_time_rows). */
#include "dit_workspace.h"

#include <math.h>

/* The rows of the time embedding. */
typedef struct time_steps {
    const ith_dit_workspace *w;
    const float *t; /* [batch] */
} time_steps;

static const float *sinusoid(const void *user, int64_t row, float *space)
{
    const time_steps *times = user;
    const int64_t half = times->w->dit->config.freq_dim / 2, rows = times->w->shape.known ? 2 : 1;
    const double t = row % rows ? 0 : (double)times->t[row / rows];
    for (int64_t i = 0; i < half; i++) {
        double angle = t * pow(10000.0, -(double)i / (double)half);
        space[i] = (float)cos(angle);
        space[half + i] = (float)sin(angle);
    }
    return space;
}

static const float *silu_of_e(const void *user, int64_t row, float *space)
{
    const ith_dit_workspace *w = ((const time_steps *)user)->w;
    w->ops->silu(space, w->e + row * w->dit->config.dim, w->dit->config.dim);
    return space;
}

ith_status ith_dit_embed_time(ith_context *context, const ith_dit_workspace *w, const float *t)
{
    const ith_dit *dit = w->dit;
    const int64_t rows = ith_dit_time_rows(&w->shape), dim = dit->config.dim;
    const time_steps times = {w, t};
    const ith_linear_input sinusoids = {sinusoid, &times}, activated = {silu_of_e, &times};
    const ith_feed_forward network = {.up = dit->time_1, .down = dit->time_2, .act = w->ops->silu};
    ith_linear_rows e = {w->e, dim}, e0 = {w->e0, ITH_DIT_MODULATIONS * dim};
    const ith_linear_output to_e = ith_linear_to_rows(&e), to_e0 = ith_linear_to_rows(&e0);
    ith_status status = ith_feed_forward_apply(context, &network, &w->linears, rows, &sinusoids, &to_e);
    return status ? status : ith_linear_apply(context, dit->time_proj, &w->linears, rows, &activated, &to_e0);
}

void ith_dit_modulate(const ith_dit_workspace *w, const float *table, int kinds, const float *e, bool one_e,
                      float *modulation)
{
    const int64_t dim = w->dit->config.dim;
    /* the rows of a table are shift, scale and gate, or these twice, or shift and scale */
    for (int64_t row = 0; row < ith_dit_time_rows(&w->shape); row++)
        for (int kind = 0; kind < kinds; kind++) {
            float *out = modulation + (row * kinds + kind) * dim;
            const float *time = e + (one_e ? row : row * kinds + kind) * dim;
            float one = kind % 3 == ITH_DIT_SCALE_SA ? 1.0f : 0.0f;
            for (int64_t i = 0; i < dim; i++)
                out[i] = one + (table[kind * dim + i] + time[i]);
        }
}
