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
#include "../callback.h"
#include "../dit/dit_shards.h"
#include "../image/condition.h"
#include "../preview.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A rank's share of the tokens, and its buffers for the whole denoising loop. */
typedef struct buffers {
    int64_t begin, count, width; /* first token and number of tokens of this rank; numbers per token */
    int64_t known_count;         /* number of this rank's tokens whose latents are known */
    int64_t condition_width;     /* numbers of a token's condition; 0: there is none */
    float *x;                    /* the latents of this rank's tokens, [count, width] */
    float *known;                /* the image's latents of this rank's known tokens, [known_count, width] */
    float *condition;            /* the condition of this rank's tokens, [count, condition_width] */
    float *velocity;             /* [2, count, width], a guidance branch each */
    float *whole;                /* on rank 0: numbers of all S tokens, [S, width] */
    ith_transfer *receives;      /* on rank 0: one transfer from every rank */
    /* On rank 0 of a run that is saved: the latents and the solver's arrays between two steps, as latents. One copy is
     * complete while the other one is filled. */
    float *kept[2][ITH_SAVED_MOST_TENSORS];
    uint8_t *preview; /* on rank 0 of a run with previews: the picture (preview.h) */
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
    int complete;         /* index of the copy in b.kept that is complete */
    int64_t kept_step;    /* number of steps that were done when it was made; -1: there is none yet */
    char attention[ITH_SAVED_ATTENTION_BYTES]; /* the choices of the plan of self-attention that change bits */
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

ith_linear_keep ith_denoise_keep(const ith_model *model, const ith_generate_options *options, int expert,
                                 const ith_latent_size *size, int ranks)
{
    if (options->keep_packed == ITH_KEEP_ALL)
        return ITH_LINEAR_KEEP_ALL;
    if (options->keep_packed == ITH_KEEP_NONE || options->shard_weights)
        return ITH_LINEAR_KEEP_NONE;
    const int64_t tokens = ith_dit_token_count(size->frames, size->height, size->width);
    const int64_t share = ith_div_up(tokens, ith_denoise_sequence_ranks(model, options, ranks));
    return ith_dit_keep(model->loras[expert], ith_denoise_batch(model, options) * share);
}

static ith_part part_of(const worker *w)
{
    return w->expert ? ITH_PART_DIT_2 : ITH_PART_DIT;
}

/* ---- Buffers --------------------------------------------------------------------------------------------------- */

/* The number of tensors in the file of a saved run: the latents and the solver's arrays. */
static int64_t saved_tensors(const ith_model *model, const ith_generate_options *options)
{
    return 1 + ith_sampler_array_count(&model->scheduler, options->solver);
}

/* Lays out the buffers of one rank in an arena. If the arena has no memory yet, it only counts the bytes. */
static void lay_out(buffers *b, ith_arena *arena, const ith_model *model, const ith_generate_options *options,
                    const ith_latent_size *size, int ranks, int rank)
{
    const int sequence_ranks = ith_denoise_sequence_ranks(model, options, ranks);
    const int64_t tokens = ith_dit_token_count(size->frames, size->height, size->width), element = sizeof(float);
    b->width = size->channels * ITH_DIT_PATCH;
    ith_share(tokens, sequence_ranks, rank % sequence_ranks, &b->begin, &b->count);
    const int64_t numbers = b->count * b->width;
    b->x = ith_arena_take(arena, numbers, element);
    b->velocity = ith_arena_take(arena, 2 * numbers, element);
    b->known_count = ith_max64(0, ith_min64(ith_condition_known(model, options, size) - b->begin, b->count));
    b->condition_width = model->info.image_use == ITH_IMAGE_NEEDED
                             ? ith_condition_size(model, options, size).channels * ITH_DIT_PATCH
                             : 0;
    b->known = ith_arena_take(arena, b->known_count * b->width, element);
    b->condition = ith_arena_take(arena, b->count * b->condition_width, element);
    if (rank)
        return;
    b->whole = ith_arena_take(arena, tokens * b->width, element);
    b->receives = ith_arena_take(arena, sequence_ranks, sizeof *b->receives);
    for (int64_t i = 0; options->checkpoint_file && i < 2 * saved_tensors(model, options); i++)
        b->kept[i % 2][i / 2] = ith_arena_take(arena, tokens * b->width, element);
    if (options->on_preview && options->preview_every)
        b->preview = ith_arena_take(arena, ith_preview_frames(size) * size->height * size->width, 3);
}

int64_t ith_denoise_saved_bytes(const ith_model *model, const ith_generate_options *options,
                                const ith_latent_size *size)
{
    return ith_saved_run_bytes(size, saved_tensors(model, options));
}

int64_t ith_denoise_bytes(const ith_model *model, const ith_generate_options *options, const ith_latent_size *size,
                          int ranks, int rank)
{
    buffers b;
    ith_arena arena = {0};
    lay_out(&b, &arena, model, options, size, ranks, rank);
    return arena.used_bytes + ITH_ALLOC_HEADER +
           ith_sampler_bytes(&model->scheduler, options->solver, options->steps, b.count * b.width);
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

/* The input of a pass. All batch entries have the same latents. */
static ith_dit_tokens tokens_of(const worker *w)
{
    return (ith_dit_tokens){.latents = w->b.x,
                            .known = w->b.known_count ? w->b.known : NULL,
                            .condition = w->b.condition_width ? w->b.condition : NULL};
}

/* Computes both guidance branches in one forward pass, as a batch of two. Without guidance the batch is one. */
static ith_status forward_batch(worker *w, float t)
{
    const float times[2] = {t, t};
    const ith_dit_tokens tokens = tokens_of(w);
    return ith_dit_forward(w->context, w->workspace, &tokens, times, w->b.velocity);
}

/* Computes the guidance branches one after the other, in the same buffers. */
static ith_status forward_in_turn(worker *w, int64_t step, float t, int branches)
{
    const ith_dit_tokens tokens = tokens_of(w);
    ith_status status = ITH_OK;
    for (int branch = 0; branch < branches && !status; branch++) {
        show_pass(w, step, branch, branches);
        ith_dit_workspace_set_text(w->workspace, w->rank->pipeline->shared.keys[branch]);
        status = ith_dit_forward(w->context, w->workspace, &tokens, &t, w->b.velocity + branch * share_numbers(w));
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
    const ith_dit_tokens tokens = tokens_of(w);
    ith_status status = ith_dit_forward(w->context, w->workspace, &tokens, &t, mine);
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

/* Gathers numbers of all ranks' tokens in b.whole on rank 0, and converts them to latents there. share: the numbers of
 * this rank's tokens. latents: used on rank 0 alone; NULL: the numbers are not converted. */
static ith_status gather(worker *w, float *share, float *latents)
{
    if (w->rank->rank >= ith_comm_size(w->sequence)) /* the first half of the ranks sends the same tokens */
        return ITH_OK;
    int64_t tokens = ith_dit_token_count(w->shape.frames, w->shape.height, w->shape.width), begin, count;
    int receive_count = w->rank->rank == 0 ? ith_comm_size(w->sequence) : 0;
    for (int rank = 0; rank < receive_count; rank++) {
        ith_share(tokens, receive_count, rank, &begin, &count);
        w->b.receives[rank] = (ith_transfer){rank, whole_region(w->b.whole + begin * w->b.width, count * w->b.width)};
    }
    ith_transfer send = {0, whole_region(share, share_numbers(w))};
    ith_status status = ith_comm_exchange(w->sequence, &send, 1, w->b.receives, receive_count);
    if (!status && receive_count && latents)
        ith_dit_unpatchify(w->b.whole, w->rank->size.channels, &w->shape, 0, tokens, latents);
    return status;
}

/* ---- Saved runs ------------------------------------------------------------------------------------------------ */

/* This rank's share of tensor `index` of a saved run: of the latents (0) or of an array of the solver. */
static float *state_share(const worker *w, int64_t index)
{
    return index ? ith_sampler_array(w->sampler, index - 1) : w->b.x;
}

/* Writes the complete copy to checkpoint_file. Rank 0 alone calls this function. */
static ith_status write_state(worker *w)
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
                            saved_tensors(rank->pipeline->model, &rank->options));
    if (!status)
        rank->report.saved_step = w->kept_step;
    return status;
}

/* Brings the latents and the solver's arrays to rank 0, `step` steps being done. */
static ith_status keep_state(worker *w, int64_t step)
{
    const int64_t tensors = saved_tensors(w->rank->pipeline->model, &w->rank->options);
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < tensors && !status; i++)
        status = gather(w, state_share(w, i), w->b.kept[1 - w->complete][i]);
    if (status)
        return status;
    w->complete = 1 - w->complete;
    w->kept_step = step;
    return ITH_OK;
}

/* Saves the run after a step, if it is to be saved. A file that cannot be written is a warning: the run goes on. */
static ith_status save_after_step(worker *w, int64_t step)
{
    const ith_generate_options *options = &w->rank->options;
    const int64_t every = options->checkpoint_every ? options->checkpoint_every : 1;
    ith_status status = w->rank->saves ? keep_state(w, step) : ITH_OK;
    if (status || !w->rank->saves || w->rank->rank || (step % every && step < options->steps))
        return status;
    if (write_state(w))
        ith_log(w->context, ITH_LOG_WARNING, "step %lld of %lld is not saved: %s", (long long)step,
                (long long)options->steps, ith_context_error(w->context));
    return ITH_OK;
}

/* Saves the run before its first step, so that a place that cannot be written fails now (ith_rank_first). */
static ith_status save_first(ith_rank *rank, void *user)
{
    (void)rank;
    return write_state(user);
}

/* After a failure: saves the state before the step that was not finished, unless the file has it. The group has ended,
 * and no rank waits. Appends to the error message if that fails. */
static ith_status save_at_failure(worker *w, ith_status failure)
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

/* ---- Previews -------------------------------------------------------------------------------------------------- */

/* Shows a preview after step number `step`, counted from 0, if one is due. It shows the clean latents x0 to which the
 * velocity of this step points, and the known latents of an image unchanged. */
static ith_status show_preview(worker *w, int64_t step)
{
    const ith_rank *rank = w->rank;
    const ith_generate_options *options = &rank->options;
    if (!rank->preview_every || ((step + 1) % rank->preview_every && step + 1 < options->steps))
        return ITH_OK;
    float *clean = w->b.velocity; /* not needed any more */
    ith_sampler_clean(w->sampler, step, w->b.x, clean);
    memcpy(clean, w->b.known, (size_t)(w->b.known_count * w->b.width) * sizeof *clean);
    ith_status status = gather(w, clean, NULL);
    if (status || rank->rank)
        return status;
    ith_preview_draw(rank->preview_map, &rank->size, w->b.whole, w->b.preview);
    const int64_t width = ith_preview_frames(&rank->size) * rank->size.width;
    ith_callback_begin(w->context);
    const int returned = options->on_preview(options->user, step + 1, w->b.preview, rank->size.height, width);
    return ith_callback_end(w->context, returned, "on_preview", "step", step + 1);
}

/* ---- Resumed runs ---------------------------------------------------------------------------------------------- */

/* The argument `user` of read_tensor. */
typedef struct tensor_read {
    int64_t index; /* number of the tensor */
    uint64_t hash; /* hash of the tensors that were read so far */
} tensor_read;

/* Reads one tensor of the saved run into the latents of every process: rank 0 reads it, and sends it to the leaders. */
static ith_status read_tensor(ith_rank *rank, void *user)
{
    tensor_read *read = user;
    float *latents = rank->pipeline->shared.latents;
    ith_status status = ITH_OK;
    if (!rank->rank)
        status = ith_saved_run_read(rank->context, rank->saved, read->index, &rank->size, latents, &read->hash);
    if (!rank->rank && !status && read->index == 0)
        status = ith_saved_run_check_hash(rank->context, rank->saved, read->hash);
    if (status || !rank->leaders)
        return status;
    return ith_comm_broadcast(rank->leaders, latents, ith_latent_count(&rank->size) * (int64_t)sizeof(float), 0);
}

/* Reads the state of the saved run into the buffers of this rank. The latents come last: they stay in the pipeline. */
static ith_status read_state(worker *w)
{
    ith_rank *rank = w->rank;
    tensor_read read = {saved_tensors(rank->pipeline->model, &rank->options), 0};
    ith_status status = ITH_OK;
    while (read.index-- > 0 && !status) {
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

/* Logs a warning if the saved run had another plan, so that the bits may differ. */
static void compare_attention(const worker *w)
{
    const ith_saved_run *saved = w->rank->saved;
    if (saved && saved->attention && *saved->attention && !w->rank->rank && strcmp(saved->attention, w->attention))
        ith_log(w->context, ITH_LOG_WARNING,
                "the self-attention is computed with %s, and in the saved run with %s: the result may differ by "
                "rounding",
                w->attention, saved->attention);
}

/* ---- A step of all ranks --------------------------------------------------------------------------------------- */

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
        status = gather(w, w->b.x, rank->pipeline->shared.latents);
    if (!status)
        status = save_after_step(w, step + 1);
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
    const ith_model *model = rank->pipeline->model;
    const ith_part part = part_of(w);
    ith_store *store = NULL;
    ith_status status = ith_model_check_unchanged(context, model, part);
    if (!status)
        status = ith_model_open_part(context, model, part, &store);
    if (!status)
        status = ith_dit_open(context, &model->dit[w->expert], store, model->loras[w->expert], rank->types,
                              ith_denoise_keep(model, &rank->options, w->expert, &rank->size, rank->ranks),
                              rank->on_device.streamed[w->expert], &shared->dit);
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
    ith_status status = ith_dit_workspace_create(w->context, shared->dit, keys, &w->shape, &rank->parts.attention,
                                                 w->sequence, &w->workspace);
    if (status)
        return status;
    ith_dit_workspace_set_shards(w->workspace, shared->shards, w->comm, !rank->position);
    rank->report.plan_seconds += ith_clock_seconds() - start;
    ith_plan_print(ith_dit_workspace_plan(w->workspace), rank->report.plan, sizeof rank->report.plan);
    ith_saved_attention(ith_dit_workspace_plan(w->workspace), w->attention);
    if (w->first_step == rank->report.steps_resumed)
        compare_attention(w);
    return ITH_OK;
}

static ith_status take_steps(worker *w)
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
static ith_status compute_expert(worker *w)
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

static ith_status run_expert(worker *w)
{
    ith_context_set_device_use(w->context, w->rank->device);
    ith_status status = compute_expert(w);
    ith_context_set_device_use(w->context, NULL);
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

/* Copies the known latents and the condition of this rank's tokens. */
static void take_images(worker *w)
{
    const ith_shared *shared = &w->rank->pipeline->shared;
    const int64_t channels = w->rank->size.channels;
    buffers *b = &w->b;
    ith_dit_shape first = w->shape;
    first.frames = 1;
    if (b->known_count)
        ith_dit_patchify(shared->condition, channels, &first, b->begin, b->known_count, b->known);
    if (b->condition_width)
        ith_dit_patchify(shared->condition, b->condition_width / ITH_DIT_PATCH, &w->shape, b->begin, b->count,
                         b->condition);
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
    w->shape = (ith_dit_shape){.batch = 1,
                               .frames = rank->size.frames,
                               .height = rank->size.height,
                               .width = rank->size.width,
                               .known = ith_condition_known(rank->pipeline->model, &rank->options, &rank->size)};
    ith_status status = ith_rank_agree(rank, make_buffers(w));
    if (!status)
        take_images(w);
    if (!status && rank->saved)
        status = read_state(w);
    else if (!status)
        ith_dit_patchify(rank->pipeline->shared.latents, rank->size.channels, &w->shape, w->b.begin, w->b.count,
                         w->b.x);
    if (!status && rank->saves)
        status = keep_state(w, w->first_step);
    if (!status && rank->saves)
        status = ith_rank_first(rank, "saving the run", save_first, w);
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
    worker w = {.rank = rank, .context = rank->context, .comm = rank->comm, .kept_step = -1};
    ith_status status = worker_open(&w);
    for (; w.first_step < rank->options.steps && !status; w.first_step = w.end_step) {
        choose_expert(&w);
        status = run_expert(&w);
    }
    if (status)
        status = save_at_failure(&w, status);
    worker_close(&w);
    if (!status && !rank->rank)
        ith_condition_impose(rank);
    return status;
}
