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

#include "../../base/arena.h"
#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/observer.h"
#include "../../base/trace.h"
#include "../../comm/comm.h"
#include "../dit/dit_shards.h"

#include <math.h>
#include <string.h>

/* A rank's share of the tokens, and its buffers for the whole denoising loop. */
typedef struct buffers {
    int64_t begin, count, width; /* first token and number of tokens of this rank; numbers per token */
    float *x;                    /* the latents of this rank's tokens, [count, width] */
    float *tokens, *velocity; /* tokens: [batch, count, width]; velocity: [2, count, width], a guidance branch each */
    float *whole;             /* on rank 0: the latents of all S tokens, [S, width] */
    ith_transfer *receives;   /* on rank 0: one transfer from every rank */
} buffers;

/* The state of one rank during the denoising loop. */
typedef struct worker {
    ith_rank *rank;
    ith_context *context;
    ith_comm *comm;     /* all ranks of the run */
    ith_comm *sequence; /* the ranks that split the tokens: comm, or this rank's half of comm */
    ith_comm *half;     /* this rank's half of comm; NULL unless the guidance branches run in parallel */
    buffers b;
    ith_arena arena;      /* memory of the buffers */
    ith_sampler *sampler; /* the solver for this rank's tokens, with the history of its earlier predictions */
    /* The members below are for the expert that is open at present. */
    int expert;
    int64_t first_step, end_step; /* the expert computes denoising steps first_step .. end_step - 1 */
    double guidance;              /* the factor g of guidance; if it is at most 1, the negative prompt is left out */
    ith_dit_shape shape;
    ith_dit_workspace *workspace;
} worker;

/* Whether the high-noise expert computes the denoising step at this time step. A single expert computes all steps. */
static bool step_is_high(const ith_model *model, const ith_generate_options *options, double timestep)
{
    return model->info.experts == 1 || timestep >= options->boundary * (double)model->scheduler.train_steps;
}

bool ith_denoise_is_guided(const ith_model *model, const ith_generate_options *options)
{
    return options->guidance[0] > 1 || (model->info.experts == 2 && options->guidance[1] > 1);
}

ith_status ith_denoise_guided_steps(ith_context *context, const ith_model *model, const ith_generate_options *options,
                                    int64_t *count)
{
    const ith_sampling sampling = {options->solver, options->sigmas, options->steps, options->shift};
    ith_sampler *sampler = NULL;
    *count = 0;
    ith_status status = ith_sampler_create(context, &model->scheduler, &sampling, 0, &sampler);
    for (int64_t step = 0; step < options->steps && !status; step++)
        *count += options->guidance[!step_is_high(model, options, ith_sampler_timestep(sampler, step))] > 1;
    ith_sampler_destroy(context, &sampler);
    return status;
}

int ith_denoise_sequence_ranks(const ith_model *model, const ith_generate_options *options, int ranks)
{
    bool halves = options->cfg == ITH_CFG_PARALLEL && ith_denoise_is_guided(model, options);
    return halves ? ranks / 2 : ranks;
}

int64_t ith_denoise_batch(const ith_model *model, const ith_generate_options *options)
{
    return options->cfg == ITH_CFG_BATCH && ith_denoise_is_guided(model, options) ? 2 : 1;
}

static int64_t token_count(const ith_dit_shape *shape)
{
    return shape->frames * (shape->height / 2) * (shape->width / 2);
}

static ith_part part_of(const worker *w)
{
    return w->expert ? ITH_PART_DIT_2 : ITH_PART_DIT;
}

/* ---- Buffers --------------------------------------------------------------------------------------------------- */

/* Lays out the buffers of one rank in an arena. If the arena has no memory yet, it only counts the bytes. */
static void lay_out(buffers *b, ith_arena *arena, const ith_model *model, const ith_generate_options *options,
                    const ith_latent_size *size, int ranks, int rank)
{
    const int sequence_ranks = ith_denoise_sequence_ranks(model, options, ranks);
    const int64_t tokens = size->frames * (size->height / 2) * (size->width / 2), element = sizeof(float);
    b->width = size->channels * 4;
    ith_share(tokens, sequence_ranks, rank % sequence_ranks, &b->begin, &b->count);
    const int64_t numbers = b->count * b->width;
    b->x = ith_arena_take(arena, numbers, element);
    b->tokens = ith_arena_take(arena, ith_denoise_batch(model, options) * numbers, element);
    b->velocity = ith_arena_take(arena, 2 * numbers, element);
    if (rank)
        return;
    b->whole = ith_arena_take(arena, tokens * b->width, element);
    b->receives = ith_arena_take(arena, sequence_ranks, sizeof *b->receives);
}

int64_t ith_denoise_bytes(const ith_model *model, const ith_generate_options *options, const ith_latent_size *size,
                          int ranks, int rank)
{
    buffers b;
    ith_arena arena = {0};
    lay_out(&b, &arena, model, options, size, ranks, rank);
    return arena.used_bytes + ith_sampler_bytes(&model->scheduler, options->solver, options->steps, b.count * b.width);
}

static ith_status make_buffers(worker *w)
{
    const ith_rank *rank = w->rank;
    const ith_generate_options *options = &rank->options;
    const ith_model *model = rank->pipeline->model;
    const ith_sampling sampling = {
        .solver = options->solver, .sigmas = options->sigmas, .steps = options->steps, .shift = options->shift};
    lay_out(&w->b, &w->arena, model, options, &rank->size, rank->ranks, rank->rank);
    ith_status status = ith_arena_allocate(w->context, &w->arena, "a rank's share of the latents");
    if (status)
        return status;
    lay_out(&w->b, &w->arena, model, options, &rank->size, rank->ranks, rank->rank);
    return ith_sampler_create(w->context, &model->scheduler, &sampling, w->b.count * w->b.width, &w->sampler);
}

/* ---- One step -------------------------------------------------------------------------------------------------- */

static int64_t share_numbers(const worker *w)
{
    return w->b.count * w->b.width;
}

/* Sets the part of the run's progress that the next forward pass accounts for. It is pass `pass` of `count` in this
 * denoising step. */
static void show_pass(worker *w, int64_t step, int pass, int count)
{
    int64_t begin = step * ITH_PROGRESS_UNIT, steps = w->rank->options.steps;
    ith_span span = {.stage = ITH_STAGE_DENOISE,
                     .begin = begin + ITH_PROGRESS_UNIT * pass / count,
                     .end = begin + ITH_PROGRESS_UNIT * (pass + 1) / count,
                     .total = steps * ITH_PROGRESS_UNIT};
    ith_dit_workspace_show(w->workspace, &span);
}

/* Computes both guidance branches in one forward pass, as a batch of two. Without guidance the batch is one. */
static ith_status forward_batch(worker *w, float t)
{
    int64_t count = share_numbers(w);
    const float times[2] = {t, t};
    for (int64_t entry = 0; entry < w->shape.batch; entry++)
        memcpy(w->b.tokens + entry * count, w->b.x, (size_t)count * sizeof(float));
    return ith_dit_forward(w->context, w->workspace, w->b.tokens, times, w->b.velocity);
}

/* Computes the guidance branches one after the other, in the same buffers. */
static ith_status forward_in_turn(worker *w, int64_t step, float t, int branches)
{
    ith_status status = ITH_OK;
    for (int branch = 0; branch < branches && !status; branch++) {
        show_pass(w, step, branch, branches);
        ith_dit_workspace_set_text(w->workspace, w->rank->pipeline->shared.keys[branch]);
        status = ith_dit_forward(w->context, w->workspace, w->b.x, &t, w->b.velocity + branch * share_numbers(w));
    }
    return status;
}

/* Describes contiguous numbers as the memory of a transfer. */
static ith_region whole_region(float *numbers, int64_t count)
{
    return (ith_region){.data = numbers, .count = {1, 1}, .bytes = count * (int64_t)sizeof(float)};
}

/* Computes the two guidance branches at the same time, each on one half of the ranks. Rank i of each half holds the
 * same tokens, so the two ranks exchange their velocities. */
static ith_status forward_side_by_side(worker *w, float t)
{
    int half_size = w->comm->size / 2, branch = w->comm->rank / half_size;
    int64_t count = share_numbers(w);
    float *mine = w->b.velocity + branch * count, *theirs = w->b.velocity + (1 - branch) * count;
    ith_status status = ith_dit_forward(w->context, w->workspace, w->b.x, &t, mine);
    if (status)
        return status;
    int partner = (w->comm->rank + half_size) % w->comm->size;
    ith_transfer send = {partner, whole_region(mine, count)}, receive = {partner, whole_region(theirs, count)};
    return ith_comm_exchange(w->comm, &send, 1, &receive, 1);
}

static ith_status forward(worker *w, int64_t step)
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
static void guide(worker *w)
{
    if (w->guidance <= 1)
        return;
    int64_t count = share_numbers(w);
    float guidance = (float)w->guidance;
    float *cond = w->b.velocity;
    const float *uncond = w->b.velocity + count;
    for (int64_t i = 0; i < count; i++)
        cond[i] = uncond[i] + guidance * (cond[i] - uncond[i]);
}

static ith_status check_finite(worker *w, int64_t step)
{
    int64_t count = share_numbers(w);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(w->b.x[i]))
            return ith_fail(w->context, ITH_ERR_NUMERIC,
                            "latents are not finite after step %lld of %lld: the run has gone wrong and was stopped",
                            (long long)step + 1, (long long)w->rank->options.steps);
    return ITH_OK;
}

/* Sends the latents of all ranks' tokens to rank 0, which writes them into the shared latents. */
static ith_status gather(worker *w)
{
    if (w->rank->rank >= ith_comm_size(w->sequence)) /* the first half of the ranks sends the same tokens */
        return ITH_OK;
    int64_t tokens = token_count(&w->shape), begin, count;
    int receive_count = w->rank->rank == 0 ? ith_comm_size(w->sequence) : 0;
    for (int rank = 0; rank < receive_count; rank++) {
        ith_share(tokens, receive_count, rank, &begin, &count);
        w->b.receives[rank] = (ith_transfer){rank, whole_region(w->b.whole + begin * w->b.width, count * w->b.width)};
    }
    ith_transfer send = {0, whole_region(w->b.x, share_numbers(w))};
    ith_status status = ith_comm_exchange(w->sequence, &send, 1, w->b.receives, receive_count);
    if (!status && receive_count)
        ith_dit_unpatchify(w->b.whole, w->rank->size.channels, &w->shape, 0, tokens, w->rank->pipeline->shared.latents);
    return status;
}

static void keep_for_dump(const worker *w, int64_t step)
{
    ith_dump *dump = w->rank->dump;
    int64_t count = ith_latent_count(&dump->size);
    memcpy(dump->latents + step * count, w->rank->pipeline->shared.latents, (size_t)count * sizeof(float));
    dump->steps_done = step + 1;
}

/* Returns a failure if this rank must not begin the next step: a request to stop, or a weight file that changed. */
static ith_status check_before_step(const worker *w)
{
    ith_status status = ith_observer_ask(w->context);
    if (!status && !w->rank->position)
        status = ith_model_check_unchanged(w->context, w->rank->pipeline->model, part_of(w));
    return status;
}

static ith_status take_step(worker *w, int64_t step)
{
    ith_rank *rank = w->rank;
    ith_status status = ith_rank_agree(rank, check_before_step(w));
    if (!status)
        status = forward(w, step);
    if (status)
        return status;
    guide(w);
    ith_sampler_step(w->sampler, step, w->b.velocity, w->b.x);
    status = ith_rank_agree(rank, check_finite(w, step));
    if (!status && (rank->dumps || step + 1 == rank->options.steps))
        status = gather(w);
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
    const worker *w = user;
    ith_shared *shared = &rank->pipeline->shared;
    /* forward passes of a rank in each step: two if it computes both guidance branches, one after the other */
    const int passes = !w->half && w->guidance > 1 && w->shape.batch == 1 ? 2 : 1;
    const ith_shard_ranks ranks = {rank->loaders, rank->neighbours, rank->team.host_ranks, !rank->team.lent};
    return ith_dit_shards_create(rank->context, shared->dit, &ranks,
                                 (w->end_step - w->first_step) * passes * ith_dit_config_of(shared->dit)->layers,
                                 &shared->shards);
}

/* Opens the weights of an expert, and makes the prompts' keys and values for its cross-attention. */
static ith_status open_expert(ith_rank *rank, void *user)
{
    const worker *w = user;
    ith_context *context = rank->context;
    ith_shared *shared = &rank->pipeline->shared;
    double start = ith_clock_seconds(), traced = ith_trace_begin(context);
    char *path = ith_model_path(context, rank->pipeline->model, ith_part_name(part_of(w)));
    ith_status status = path ? ith_model_check_unchanged(context, rank->pipeline->model, part_of(w)) : ITH_ERR_MEMORY;
    if (!status)
        status = ith_dit_open(context, path, rank->types, rank->options.keep_packed, &shared->dit);
    ith_free(context, path);
    ith_trace_end(context, traced, "open transformer", "load");
    rank->report.load_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    ith_observer_set_activity(context, "making the prompts' keys");
    start = ith_clock_seconds(), traced = ith_trace_begin(context);
    const float *const *text = (const float *const *)shared->text;
    int branches = w->guidance > 1 ? 2 : 1, together = w->shape.batch == branches ? branches : 1;
    for (int branch = 0; branch < branches && !status; branch += together)
        status =
            ith_dit_text_create(context, shared->dit, together, rank->team.lends && rank->rank ? NULL : &text[branch],
                                &shared->text_count[branch], &shared->keys[branch]);
    ith_trace_end(context, traced, "text keys", "compute");
    rank->report.text_seconds += ith_clock_seconds() - start;
    return status;
}

/* Sends the prompts' keys and values, which rank 0 has made, to the leaders of all pipelines. */
static ith_status share_keys(ith_rank *rank, void *user)
{
    (void)user;
    ith_status status = ITH_OK;
    for (int branch = 0; branch < 2 && !status; branch++) {
        int64_t bytes = 0;
        void *keys = ith_dit_text_data(rank->pipeline->shared.dit, rank->pipeline->shared.keys[branch], &bytes);
        if (keys)
            status = ith_comm_broadcast(rank->leaders, keys, bytes, 0);
    }
    return status;
}

/* Makes this rank's buffers and attention plans for the expert in use. */
static ith_status make_workspace(worker *w)
{
    ith_rank *rank = w->rank;
    const ith_shared *shared = &rank->pipeline->shared;
    const ith_dit_text *keys = shared->keys[w->half && w->guidance > 1 ? rank->rank / ith_comm_size(w->half) : 0];
    double start = ith_clock_seconds();
    ith_status status = ith_dit_workspace_create(w->context, shared->dit, keys, &w->shape, &rank->attention,
                                                 w->sequence, &w->workspace);
    if (status)
        return status;
    ith_dit_workspace_set_shards(w->workspace, shared->shards, w->comm, !rank->position);
    rank->report.plan_seconds += ith_clock_seconds() - start;
    ith_plan_print(ith_dit_workspace_plan(w->workspace), rank->report.plan, sizeof rank->report.plan);
    return ITH_OK;
}

static ith_status take_steps(worker *w)
{
    ith_status status = ITH_OK;
    double start = ith_clock_seconds();
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

static ith_status run_expert(worker *w)
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

/* ---- All steps ------------------------------------------------------------------------------------------------- */

static bool is_high(const worker *w, int64_t step)
{
    return step_is_high(w->rank->pipeline->model, &w->rank->options, ith_sampler_timestep(w->sampler, step));
}

/* Chooses the expert that computes denoising step first_step, and sets end_step to the end of this expert's steps. They
 * are consecutive, because time steps decrease. */
static void choose_expert(worker *w)
{
    const ith_generate_options *options = &w->rank->options;
    const int64_t *counts = w->rank->pipeline->shared.text_count;
    bool high = is_high(w, w->first_step);
    w->end_step = w->first_step + 1;
    while (w->end_step < options->steps && is_high(w, w->end_step) == high)
        w->end_step++;
    w->expert = high ? 0 : 1;
    w->guidance = options->guidance[w->expert];
    w->shape.batch = options->cfg == ITH_CFG_BATCH && w->guidance > 1 ? 2 : 1;
    w->shape.longest_text = counts[0] > counts[1] ? counts[0] : counts[1];
}

/* Splits the ranks into halves if the guidance branches run in parallel, and makes the buffers of this rank. */
static ith_status worker_open(worker *w)
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
    w->shape = (ith_dit_shape){1, rank->size.frames, rank->size.height, rank->size.width, 0};
    ith_status status = ith_rank_agree(rank, make_buffers(w));
    if (!status)
        ith_dit_patchify(rank->pipeline->shared.latents, rank->size.channels, &w->shape, w->b.begin, w->b.count,
                         w->b.x);
    return status;
}

static void worker_close(worker *w)
{
    ith_comm_destroy(&w->half);
    ith_sampler_destroy(w->context, &w->sampler);
    ith_free(w->context, w->arena.base);
}

ith_status ith_denoise(ith_rank *rank)
{
    worker w = {.rank = rank, .context = rank->context, .comm = rank->comm};
    ith_status status = worker_open(&w);
    for (; w.first_step < rank->options.steps && !status; w.first_step = w.end_step) {
        choose_expert(&w);
        status = run_expert(&w);
    }
    worker_close(&w);
    return status;
}
