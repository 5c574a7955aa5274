/* SPDX-License-Identifier: Apache-2.0 */
/* The denoising loop, as every rank runs it.
 *
 *   for every step:  v = dit(x, t)
 *                    with guidance g (arXiv:2207.12598): v = u + g (c - u), c for the prompt, u for the negative prompt
 *                    x = solver(x, v)
 *
 * x consists of tokens that are split over the ranks. A rank embeds, transforms and steps its own share, and only
 * self-attention communicates. The ranks of a pipeline share the weights of one expert at a time. The solver's history
 * belongs to the rank and survives the switch of experts. */
#include "denoise.h"

#include "../../../base/callback.h"
#include "../../../base/clock.h"
#include "../../../base/context.h"
#include "../../../base/count.h"
#include "../../../base/observer.h"
#include "../../../base/trace.h"
#include "../../dit/dit_shards.h"
#include "../condition.h"
#include "../preview.h"
#include "denoise_buffers.h"
#include "denoise_choice.h"
#include "denoise_pass.h"
#include "denoise_saves.h"

#include <math.h>
#include <string.h>

static ith_part part_of(const ith_denoiser *w)
{
    return w->expert ? ITH_PART_DIT_2 : ITH_PART_DIT;
}

/* ---- A step of all ranks --------------------------------------------------------------------------------------- */

static ith_status check_finite(ith_denoiser *w, int64_t step)
{
    int64_t count = ith_denoise_share_numbers(w);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(w->b.x[i]))
            return ith_fail(w->context, ITH_ERR_NUMERIC,
                            "latents are not finite after step %lld of %lld: the run has gone wrong and was stopped",
                            (long long)step + 1, (long long)w->rank->options.steps);
    return ITH_OK;
}

/* Shows a preview after step number `step`, counted from 0, if one is due. It shows the clean latents x0 to which the
 * velocity of this step points, and the known latents of an image unchanged. */
static ith_status show_preview(ith_denoiser *w, int64_t step)
{
    const ith_rank *rank = w->rank;
    const ith_generate_options *options = &rank->options;
    if (!rank->preview_every || ((step + 1) % rank->preview_every && step + 1 < options->steps))
        return ITH_OK;
    float *clean = w->b.velocity; /* the velocity is not needed any more */
    ith_sampler_clean(w->sampler, step, w->b.x, clean);
    memcpy(clean, w->b.known, (size_t)(w->b.known_count * w->b.width) * sizeof *clean);
    ith_status status = ith_denoise_gather(w, clean, NULL);
    if (status || rank->rank)
        return status;
    ith_preview_draw(rank->preview_map, &rank->size, w->b.whole, w->b.preview);
    const int64_t width = ith_preview_frames(&rank->size) * rank->size.width;
    ith_callback_begin(w->context);
    const int returned = options->on_preview(options->user, step + 1, w->b.preview, rank->size.height, width);
    return ith_callback_end(w->context, returned, "on_preview", "step", step + 1);
}

static void keep_for_dump(const ith_denoiser *w, int64_t step)
{
    ith_dump *dump = w->rank->dump;
    int64_t count = ith_latent_count(&dump->size);
    memcpy(dump->latents + step * count, w->rank->pipeline->shared.latents, (size_t)count * sizeof(float));
    dump->steps_done = step + 1;
}

/* Returns a failure if this rank must not begin the next step: a request to stop, or a weight file that changed. */
static ith_status check_before_step(const ith_denoiser *w)
{
    ith_observer_ask(w->context);
    ith_status status = ith_context_check(w->context);
    if (!status && !w->rank->position)
        status = ith_model_check_unchanged(w->context, w->rank->pipeline->model, part_of(w));
    return status;
}

static ith_status take_step(ith_denoiser *w, int64_t step)
{
    ith_rank *rank = w->rank;
    ith_status status = ith_rank_agree(rank, check_before_step(w));
    if (!status)
        status = ith_denoise_predict(w, step);
    if (status)
        return status;
    ith_sampler_step(w->sampler, step, w->b.velocity, w->b.x);
    status = ith_rank_agree(rank, check_finite(w, step));
    if (!status && (rank->dumps || step + 1 == rank->options.steps))
        status = ith_denoise_gather(w, w->b.x, rank->pipeline->shared.latents);
    if (!status)
        status = ith_denoise_save_after_step(w, step + 1);
    if (!status)
        status = show_preview(w, step);
    if (status)
        return status;
    if (rank->dump)
        keep_for_dump(w, step);
    rank->report.steps_done = step + 1;
    ith_observer_show(w->context, ITH_STAGE_DENOISE, (step + 1) * ITH_PROGRESS_UNIT,
                      rank->options.steps * ITH_PROGRESS_UNIT);
    return ITH_OK;
}

/* ---- The steps of one expert ----------------------------------------------------------------------------------- */

/* Lets each host keep a part of the expert's weights. */
static ith_status share_out(ith_rank *rank, void *user)
{
    const ith_denoiser *w = user;
    ith_shared *shared = &rank->pipeline->shared;
    /* forward passes of a rank in each step: two if it computes both guidance branches, one after the other */
    const int passes = !w->half && w->guidance > 1 && w->shape.batch == 1 ? 2 : 1;
    const ith_shard_ranks ranks = {rank->loaders, rank->neighbours, rank->team.host_ranks, !rank->team.lent};
    return ith_dit_shards_create(rank->context, shared->dit, &ranks,
                                 (w->end_step - w->first_step) * passes * ith_dit_config_of(shared->dit)->layers,
                                 &shared->shards);
}

/* Opens the weights of an expert, and makes the keys and values of the prompts and of the images for its
 * cross-attention. */
static ith_status open_expert(ith_rank *rank, void *user)
{
    const ith_denoiser *w = user;
    ith_context *context = rank->context;
    ith_shared *shared = &rank->pipeline->shared;
    double start = ith_clock_seconds(), traced = ith_trace_begin(context);
    const ith_model *model = rank->pipeline->model;
    const ith_dit_choices choices = {
        .types = rank->types,
        .lora = model->loras[w->expert],
        .keep = ith_denoise_keep(model, &rank->options, w->expert, &rank->size, rank->ranks),
        .streamed = rank->on_device.streamed[w->expert],
    };
    ith_store *store = NULL;
    ith_status status = ith_model_open_unchanged(context, model, part_of(w), &store);
    if (!status)
        status = ith_dit_open(context, &model->dit[w->expert], store, &choices, &shared->dit);
    ith_trace_end(context, traced, "open transformer", "load");
    rank->report.load_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    ith_observer_set_activity(context, "making the prompts' keys");
    start = ith_clock_seconds(), traced = ith_trace_begin(context);
    const float *const *text = (const float *const *)shared->text;
    const bool receives = rank->team.lends && rank->rank; /* rank 0 makes the keys, and sends them (share_keys) */
    int branches = w->guidance > 1 ? 2 : 1, together = w->shape.batch == branches ? branches : 1;
    for (int branch = 0; branch < branches && !status; branch += together)
        status = ith_dit_text_create(context, shared->dit, together, receives ? NULL : &text[branch],
                                     &shared->text_count[branch], &shared->keys[branch]);
    if (!status && w->shape.image_rows)
        status = ith_dit_image_create(context, shared->dit, receives ? NULL : shared->image_rows, w->shape.image_rows,
                                      &shared->images);
    ith_trace_end(context, traced, "text keys", "compute");
    rank->report.text_seconds += ith_clock_seconds() - start;
    return status;
}

/* Sends the keys and values of the prompts and of the images, which rank 0 has made, to the leaders of all
 * pipelines. */
static ith_status share_keys(ith_rank *rank, void *user)
{
    (void)user;
    const ith_shared *shared = &rank->pipeline->shared;
    int64_t bytes[3];
    void *const keys[] = {ith_dit_text_data(shared->dit, shared->keys[0], &bytes[0]),
                          ith_dit_text_data(shared->dit, shared->keys[1], &bytes[1]),
                          ith_dit_image_data(shared->dit, shared->images, &bytes[2])};
    ith_status status = ITH_OK;
    for (int i = 0; i < ITH_COUNT(keys) && !status; i++)
        if (keys[i])
            status = ith_comm_broadcast(rank->leaders, keys[i], bytes[i], 0);
    return status;
}

/* Makes this rank's buffers and attention plans for the expert in use. */
static ith_status make_workspace(ith_denoiser *w)
{
    ith_rank *rank = w->rank;
    const ith_shared *shared = &rank->pipeline->shared;
    const ith_dit_text *keys = shared->keys[w->half && w->guidance > 1 ? rank->rank / ith_comm_size(w->half) : 0];
    double start = ith_clock_seconds();
    ith_status status = ith_dit_workspace_create(w->context, shared->dit, keys, &w->shape, &rank->parts.attention,
                                                 w->sequence, &w->workspace);
    if (status)
        return status;
    ith_dit_workspace_set_image(w->workspace, shared->images);
    ith_dit_workspace_set_shards(w->workspace, shared->shards, w->comm, !rank->position);
    rank->report.plan_seconds += ith_clock_seconds() - start;
    ith_plan_print(ith_dit_workspace_plan(w->workspace), rank->report.plan, sizeof rank->report.plan);
    ith_saved_attention(ith_dit_workspace_plan(w->workspace), w->attention);
    if (w->first_step == rank->report.steps_resumed)
        ith_denoise_compare_attention(w);
    return ITH_OK;
}

static ith_status take_steps(ith_denoiser *w)
{
    ith_status status = ITH_OK;
    double start = ith_clock_seconds();
    ith_observer_show(w->context, ITH_STAGE_DENOISE, w->first_step * ITH_PROGRESS_UNIT,
                      w->rank->options.steps * ITH_PROGRESS_UNIT);
    for (int64_t step = w->first_step; step < w->end_step && !status; step++) {
        double traced = ith_trace_begin(w->context);
        ith_observer_set_activity(w->context, "denoising step %lld of %lld", (long long)step + 1,
                                  (long long)w->rank->options.steps);
        status = ith_observer_say_activity(w->context, take_step(w, step));
        ith_trace_end(w->context, traced, "step", "compute");
    }
    w->rank->report.denoise_seconds += ith_clock_seconds() - start;
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    if (!ith_plan_count(ith_dit_workspace_plan(w->workspace), &counters))
        w->rank->report.compression_error = fmax(w->rank->report.compression_error, counters.compression_error);
    return status;
}

/* The steps of one expert, while the context uses the device. */
static ith_status compute_expert(ith_denoiser *w)
{
    const char *activity = w->expert ? "opening the transformer_2" : "opening the transformer";
    ith_status status = ith_rank_lead(w->rank, activity, open_expert, w);
    if (!status && w->rank->team.lends)
        status = ith_rank_lead(w->rank, activity, share_keys, w);
    if (!status && ith_shards_weights(&w->rank->options, &w->rank->team))
        status = ith_rank_lead(w->rank, activity, share_out, w);
    if (!status)
        status = make_workspace(w);
    if (!status)
        status = take_steps(w);
    if (status)
        status = ith_rank_fail(w->rank, status); /* the group must end before another rank waits for this one */
    ith_dit_workspace_free(w->context, &w->workspace);
    if (!status)
        status = ith_rank_agree(w->rank, ITH_OK); /* after this agreement no rank uses the expert */
    if (!status && !w->rank->position)
        ith_shared_free_expert(w->context, &w->rank->pipeline->shared);
    return status;
}

static ith_status run_expert(ith_denoiser *w)
{
    ith_context_set_device_use(w->context, w->rank->device);
    ith_status status = compute_expert(w);
    ith_context_set_device_use(w->context, NULL);
    return status;
}

/* ---- All steps ------------------------------------------------------------------------------------------------- */

static bool is_high(const ith_denoiser *w, int64_t step)
{
    return ith_denoise_step_is_high(w->rank->pipeline->model, &w->rank->options,
                                    ith_sampler_timestep(w->sampler, step));
}

/* Chooses the expert that computes denoising step first_step, and sets end_step to the end of this expert's steps. They
 * are consecutive, because time steps decrease. */
static void choose_expert(ith_denoiser *w)
{
    const ith_generate_options *options = &w->rank->options;
    bool high = is_high(w, w->first_step);
    w->end_step = w->first_step + 1;
    while (w->end_step < options->steps && is_high(w, w->end_step) == high)
        w->end_step++;
    w->expert = high ? 0 : 1;
    w->guidance = options->guidance[w->expert];
    w->shape.batch = options->cfg == ITH_CFG_BATCH && w->guidance > 1 ? 2 : 1;
}

/* Copies the known latents and the condition of this rank's tokens. A run without a step has no condition. */
static void take_images(ith_denoiser *w)
{
    const ith_shared *shared = &w->rank->pipeline->shared;
    const int64_t channels = w->rank->size.channels;
    ith_denoise_buffers *b = &w->b;
    ith_dit_shape first = w->shape;
    first.frames = 1;
    if (b->known_count)
        ith_dit_patchify(shared->condition, channels, &first, b->begin, b->known_count, b->known);
    if (b->condition_width && shared->condition)
        ith_dit_patchify(shared->condition, b->condition_width / ITH_DIT_PATCH, &w->shape, b->begin, b->count,
                         b->condition);
}

/* Splits the ranks into halves if the guidance branches run in parallel, and makes the buffers of this rank. */
static ith_status denoiser_open(ith_denoiser *w)
{
    ith_rank *rank = w->rank;
    int sequence_ranks = ith_denoise_sequence_ranks(rank->pipeline->model, &rank->options, rank->ranks);
    w->sequence = w->comm;
    if (sequence_ranks < rank->ranks) {
        ith_status status = ith_comm_split(w->comm, rank->rank / sequence_ranks, rank->rank, &w->half);
        if (status)
            return status;
        w->sequence = w->half;
    }
    w->shape =
        ith_denoise_shape(rank->pipeline->model, &rank->options, &rank->size, rank->pipeline->shared.text_count, 1);
    ith_status status = ith_rank_agree(rank, ith_denoise_make_buffers(w));
    if (!status)
        take_images(w);
    if (!status && rank->saved)
        status = ith_denoise_read_state(w);
    else if (!status)
        ith_dit_patchify(rank->pipeline->shared.latents, rank->size.channels, &w->shape, w->b.begin, w->b.count,
                         w->b.x);
    if (!status && rank->saves)
        status = ith_denoise_keep_state(w, w->first_step);
    if (!status && rank->saves)
        status = ith_rank_first(rank, "saving the run", ith_denoise_save_first, w);
    return status;
}

static void denoiser_close(ith_denoiser *w)
{
    ith_comm_destroy(&w->half);
    ith_sampler_destroy(w->context, &w->sampler);
    ith_free(w->context, w->arena.base);
}

ith_status ith_denoise(ith_rank *rank)
{
    ith_denoiser w = {.rank = rank, .context = rank->context, .comm = rank->comm, .kept_step = -1};
    ith_status status = denoiser_open(&w);
    for (; w.first_step < rank->options.steps && !status; w.first_step = w.end_step) {
        choose_expert(&w);
        status = run_expert(&w);
    }
    if (status)
        status = ith_denoise_save_at_failure(&w, status);
    denoiser_close(&w);
    if (!status && !rank->rank)
        ith_condition_impose(rank);
    return status;
}
