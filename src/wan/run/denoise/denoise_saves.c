/* SPDX-License-Identifier: Apache-2.0 */
/* Saved runs (saved_run.h): keeps the state between two steps on rank 0, writes it, and reads it again. */
#include "denoise_saves.h"

#include "../../../base/context.h"
#include "denoise_buffers.h"

#include <stdio.h>
#include <string.h>

/* ---- Saving ---------------------------------------------------------------------------------------------------- */

/* This rank's share of tensor `index` of a saved run: of the latents (0) or of an array of the solver. */
static float *state_share(const ith_denoiser *w, int64_t index)
{
    return index ? ith_sampler_array(w->sampler, index - 1) : w->b.x;
}

/* Writes the complete copy to checkpoint_file. Rank 0 alone calls this function. */
static ith_status write_state(ith_denoiser *w)
{
    ith_rank *rank = w->rank;
    const ith_saved_facts facts = {.options = &rank->options,
                                   .step = w->kept_step,
                                   .model_hash = rank->model_hash,
                                   .noise_hash = rank->noise_hash,
                                   .plan = rank->report.plan,
                                   .attention = w->attention};
    ith_status status =
        ith_saved_run_write(w->context, rank->options.checkpoint_file, &facts, &rank->size, w->b.kept[w->complete],
                            ith_denoise_saved_tensors(rank->pipeline->model, &rank->options));
    if (!status)
        rank->report.saved_step = w->kept_step;
    return status;
}

ith_status ith_denoise_keep_state(ith_denoiser *w, int64_t step)
{
    const int64_t tensors = ith_denoise_saved_tensors(w->rank->pipeline->model, &w->rank->options);
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < tensors && !status; i++)
        status = ith_denoise_gather(w, state_share(w, i), w->b.kept[1 - w->complete][i]);
    if (status)
        return status;
    w->complete = 1 - w->complete;
    w->kept_step = step;
    return ITH_OK;
}

ith_status ith_denoise_save_after_step(ith_denoiser *w, int64_t step)
{
    const ith_generate_options *options = &w->rank->options;
    const int64_t every = options->checkpoint_every ? options->checkpoint_every : 1;
    ith_status status = w->rank->saves ? ith_denoise_keep_state(w, step) : ITH_OK;
    if (status || !w->rank->saves || w->rank->rank || (step % every && step < options->steps))
        return status;
    if (write_state(w))
        ith_log(w->context, ITH_LOG_WARNING, "step %lld of %lld is not saved: %s", (long long)step,
                (long long)options->steps, ith_context_error(w->context));
    return ITH_OK;
}

ith_status ith_denoise_save_first(ith_rank *rank, void *denoiser)
{
    (void)rank;
    return write_state(denoiser);
}

ith_status ith_denoise_save_at_failure(ith_denoiser *w, ith_status failure)
{
    char sentence[ITH_ERROR_BYTES];
    const ith_generate_report *report = &w->rank->report;
    if (w->rank->rank || w->kept_step <= report->saved_step || w->kept_step == report->steps_resumed)
        return failure;
    snprintf(sentence, sizeof sentence, "%s", ith_context_error(w->context));
    if (!write_state(w))
        return ith_fail(w->context, failure, "%s", sentence);
    return ith_fail(w->context, failure, "%.400s; and step %lld is not saved: %.400s", sentence,
                    (long long)w->kept_step, ith_context_error(w->context));
}

/* ---- Resuming -------------------------------------------------------------------------------------------------- */

/* The argument `user` of read_tensor. */
typedef struct tensor_read {
    int64_t index; /* number of the tensor */
    uint64_t hash; /* hash of the tensors that were read so far */
} tensor_read;

/* Reads one tensor of the saved run into the latents of every process: rank 0 reads it, and sends it to the leaders,
 * which do not wait for a tensor that it could not read. */
static ith_status read_tensor(ith_rank *rank, void *user)
{
    tensor_read *read = user;
    float *latents = rank->pipeline->shared.latents;
    ith_status status = ITH_OK;
    if (!rank->rank)
        status = ith_saved_run_read(rank->context, rank->saved, rank->options.solver, read->index, &rank->size, latents,
                                    &read->hash);
    if (!rank->rank && !status && read->index == 0)
        status = ith_saved_run_check_hash(rank->context, rank->saved, read->hash);
    status = ith_comm_agree(rank->leaders, status);
    if (status || !rank->leaders)
        return status;
    return ith_comm_broadcast(rank->leaders, latents, ith_latent_count(&rank->size) * (int64_t)sizeof(float), 0);
}

ith_status ith_denoise_read_state(ith_denoiser *w)
{
    ith_rank *rank = w->rank;
    tensor_read read = {ith_denoise_saved_tensors(rank->pipeline->model, &rank->options), 0};
    ith_status status = ITH_OK;
    while (read.index-- > 0 && !status) { /* the latents come last: they stay in the pipeline */
        status = ith_rank_lead(rank, "reading the saved run", read_tensor, &read);
        if (!status)
            ith_dit_patchify(rank->pipeline->shared.latents, rank->size.channels, &w->shape, w->b.begin, w->b.count,
                             state_share(w, read.index));
        if (!status)
            status = ith_rank_agree(rank, ITH_OK); /* no rank reads the tensor any more */
    }
    w->first_step = rank->report.steps_done = rank->report.steps_resumed = rank->saved->step;
    return status;
}

void ith_denoise_compare_attention(const ith_denoiser *w)
{
    const ith_saved_run *saved = w->rank->saved;
    if (saved && saved->attention && *saved->attention && !w->rank->rank && strcmp(saved->attention, w->attention))
        ith_log(w->context, ITH_LOG_WARNING,
                "the self-attention is computed with %s, and in the saved run with %s: the result may differ by "
                "rounding",
                w->attention, saved->attention);
}
