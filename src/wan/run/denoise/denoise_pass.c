/* SPDX-License-Identifier: Apache-2.0 */
/* The prediction of a denoising step: the forward passes of one or both guidance branches, and guidance. The branches
 * are a batch of two, or passes one after the other, or each the work of one half of the ranks (ith_cfg). */
#include "denoise_pass.h"

#include "denoise_buffers.h"

/* Sets the part of the run's progress that the next forward pass accounts for. It is pass `pass` of `count` in this
 * denoising step. */
static void show_pass(ith_denoiser *w, int64_t step, int pass, int count)
{
    int64_t begin = step * ITH_PROGRESS_UNIT, steps = w->rank->options.steps;
    ith_span span = {.stage = ITH_STAGE_DENOISE,
                     .begin = begin + ITH_PROGRESS_UNIT * pass / count,
                     .end = begin + ITH_PROGRESS_UNIT * (pass + 1) / count,
                     .total = steps * ITH_PROGRESS_UNIT};
    ith_dit_workspace_show(w->workspace, &span);
}

/* The input of a pass. All batch entries have the same latents. */
static ith_dit_tokens tokens_of(const ith_denoiser *w)
{
    return (ith_dit_tokens){.latents = w->b.x,
                            .known = w->b.known_count ? w->b.known : NULL,
                            .condition = w->b.condition_width ? w->b.condition : NULL};
}

/* Computes both guidance branches in one forward pass, as a batch of two. Without guidance the batch is one. */
static ith_status forward_batch(ith_denoiser *w, float t)
{
    const float times[2] = {t, t};
    const ith_dit_tokens tokens = tokens_of(w);
    return ith_dit_forward(w->context, w->workspace, &tokens, times, w->b.velocity);
}

/* Computes the guidance branches one after the other, in the same buffers. */
static ith_status forward_in_turn(ith_denoiser *w, int64_t step, float t, int branches)
{
    const ith_dit_tokens tokens = tokens_of(w);
    ith_status status = ITH_OK;
    for (int branch = 0; branch < branches && !status; branch++) {
        show_pass(w, step, branch, branches);
        ith_dit_workspace_set_text(w->workspace, w->rank->pipeline->shared.keys[branch]);
        status = ith_dit_forward(w->context, w->workspace, &tokens, &t,
                                 w->b.velocity + branch * ith_denoise_share_numbers(w));
    }
    return status;
}

/* Computes the two guidance branches at the same time, each on one half of the ranks. Rank i of each half holds the
 * same tokens, so the two ranks exchange their velocities. */
static ith_status forward_side_by_side(ith_denoiser *w, float t)
{
    int half_size = w->comm->size / 2, branch = w->comm->rank / half_size;
    int64_t count = ith_denoise_share_numbers(w);
    float *mine = w->b.velocity + branch * count, *theirs = w->b.velocity + (1 - branch) * count;
    const ith_dit_tokens tokens = tokens_of(w);
    ith_status status = ith_dit_forward(w->context, w->workspace, &tokens, &t, mine);
    if (status)
        return status;
    int partner = (w->comm->rank + half_size) % w->comm->size;
    ith_transfer send = {partner, ith_denoise_region(mine, count)},
                 receive = {partner, ith_denoise_region(theirs, count)};
    return ith_comm_exchange(w->comm, &send, 1, &receive, 1);
}

static ith_status forward(ith_denoiser *w, int64_t step)
{
    int branches = w->guidance > 1 ? 2 : 1;
    float t = (float)ith_sampler_timestep(w->sampler, step);
    show_pass(w, step, 0, 1);
    if (w->half && branches == 2)
        return forward_side_by_side(w, t);
    if (w->shape.batch == branches)
        return forward_batch(w, t);
    return forward_in_turn(w, step, t, branches);
}

/* Computes v = u + g (c - u) in place of c. c and u are the two halves of the velocity buffer. */
static void guide(ith_denoiser *w)
{
    if (w->guidance <= 1)
        return;
    int64_t count = ith_denoise_share_numbers(w);
    float guidance = (float)w->guidance;
    float *cond = w->b.velocity;
    const float *uncond = w->b.velocity + count;
    for (int64_t i = 0; i < count; i++)
        cond[i] = uncond[i] + guidance * (cond[i] - uncond[i]);
}

ith_status ith_denoise_predict(ith_denoiser *w, int64_t step)
{
    ith_status status = forward(w, step);
    if (!status)
        guide(w);
    return status;
}
