/* SPDX-License-Identifier: Apache-2.0 */
/* The denoising loop.
 *
 *   for every step:  v = dit(x, t)   or, with guidance g,   v = u + g (c - u)   of the prompt's c and the negative's u
 *                    x = solver(x, v)
 *
 * x stays cut into tokens and split over the ranks: a rank embeds, transforms and steps its own share, and only
 * self-attention communicates. Weights are shared by the ranks and held for the expert in use alone; the solver's
 * history lies outside the experts and survives the switch. */
#include "denoise.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/observer.h"
#include "../../base/trace.h"
#include "../../comm/comm.h"

#include <math.h>
#include <string.h>

/* What a rank keeps over both experts: its share of x, and the solver's history of it. */
typedef struct rank_share {
    int64_t begin, count; /* tokens */
    float *x;             /* [count, channels * 4] */
    ith_sampler *sampler;
} rank_share;

/* The steps of one expert. */
typedef struct phase {
    ith_denoise_job *job;
    ith_dit *dit;
    ith_dit_text *text[2]; /* batch: the first holds both branches; otherwise one each */
    rank_share *shares;    /* one a rank */
    ith_dit_shape shape;
    int expert;
    int64_t first_step, end_step, width; /* width: numbers in a token */
    double guidance;
} phase;

/* One rank at work on a phase. */
typedef struct worker {
    ith_context *context;
    phase *phase;
    rank_share *share;
    ith_comm *comm;     /* all ranks */
    ith_comm *sequence; /* those that share the tokens: comm, or this rank's half of it */
    ith_comm *half;     /* owned; NULL unless the branches run side by side */
    ith_dit_workspace *run;
    float *tokens, *velocity; /* [batch, count, width]; velocity has room for both branches */
    float *whole;             /* rank 0: [S, width] */
    ith_transfer *receives;   /* rank 0: one a rank */
} worker;

static bool step_is_high(const ith_model *model, const ith_generate_options *options, double timestep)
{
    return model->info.experts == 1 || timestep >= options->boundary * (double)model->scheduler.train_steps;
}

bool ith_denoise_is_guided(const ith_model *model, const ith_generate_options *options)
{
    return options->guidance[0] > 1 || (model->info.experts == 2 && options->guidance[1] > 1);
}

int ith_denoise_sequence_ranks(const ith_model *model, const ith_generate_options *options)
{
    bool halves = options->cfg == ITH_CFG_PARALLEL && ith_denoise_is_guided(model, options);
    return halves ? options->ranks / 2 : options->ranks;
}

int64_t ith_denoise_batch(const ith_model *model, const ith_generate_options *options)
{
    return options->cfg == ITH_CFG_BATCH && ith_denoise_is_guided(model, options) ? 2 : 1;
}

static int64_t token_count(const ith_dit_shape *shape)
{
    return shape->frames * (shape->height / 2) * (shape->width / 2);
}

/* ---- One step of one rank -------------------------------------------------------------------------------------- */

static int64_t share_numbers(const worker *w)
{
    return w->share->count * w->phase->width;
}

/* One of `count` passes of the step is next. */
static void show_pass(worker *w, int64_t step, int pass, int count)
{
    int64_t begin = step * ITH_PROGRESS_UNIT, steps = w->phase->job->options->steps;
    ith_span span = {.stage = ITH_STAGE_DENOISE,
                     .begin = begin + ITH_PROGRESS_UNIT * pass / count,
                     .end = begin + ITH_PROGRESS_UNIT * (pass + 1) / count,
                     .total = steps * ITH_PROGRESS_UNIT};
    if (!w->comm->rank)
        ith_dit_workspace_show(w->run, &span);
}

/* Both branches as one batch of two. */
static ith_status forward_batch(worker *w, float t)
{
    int64_t count = share_numbers(w);
    const float times[2] = {t, t};
    for (int64_t entry = 0; entry < w->phase->shape.batch; entry++)
        memcpy(w->tokens + entry * count, w->share->x, (size_t)count * sizeof(float));
    return ith_dit_forward(w->context, w->run, w->tokens, times, w->velocity);
}

/* One branch after the other, in the same buffers. */
static ith_status forward_in_turn(worker *w, int64_t step, float t, int branches)
{
    ith_status status = ITH_OK;
    for (int branch = 0; branch < branches && !status; branch++) {
        show_pass(w, step, branch, branches);
        ith_dit_workspace_set_text(w->run, w->phase->text[branch]);
        status = ith_dit_forward(w->context, w->run, w->share->x, &t, w->velocity + branch * share_numbers(w));
    }
    return status;
}

static ith_region whole_region(float *numbers, int64_t count)
{
    return (ith_region){.data = numbers, .count = {1, 1}, .bytes = count * (int64_t)sizeof(float)};
}

/* Each half of the ranks computes one branch; rank i of one half and of the other hold the same tokens and swap. */
static ith_status forward_side_by_side(worker *w, float t)
{
    int half_size = w->comm->size / 2, branch = w->comm->rank / half_size;
    int64_t count = share_numbers(w);
    float *mine = w->velocity + branch * count, *theirs = w->velocity + (1 - branch) * count;
    ith_status status = ith_dit_forward(w->context, w->run, w->share->x, &t, mine);
    if (status)
        return status;
    int partner = (w->comm->rank + half_size) % w->comm->size;
    ith_transfer send = {partner, whole_region(mine, count)}, receive = {partner, whole_region(theirs, count)};
    return ith_comm_exchange(w->comm, &send, 1, &receive, 1);
}

static ith_status forward(worker *w, int64_t step)
{
    int branches = w->phase->guidance > 1 ? 2 : 1;
    float t = (float)ith_sampler_timestep(w->share->sampler, step);
    show_pass(w, step, 0, 1);
    if (w->half && branches == 2)
        return forward_side_by_side(w, t);
    if (w->phase->shape.batch == branches)
        return forward_batch(w, t);
    return forward_in_turn(w, step, t, branches);
}

/* v = u + g (c - u), into the first half of velocity. */
static void guide(worker *w)
{
    if (w->phase->guidance <= 1)
        return;
    int64_t count = share_numbers(w);
    float guidance = (float)w->phase->guidance;
    float *cond = w->velocity;
    const float *uncond = w->velocity + count;
    for (int64_t i = 0; i < count; i++)
        cond[i] = uncond[i] + guidance * (cond[i] - uncond[i]);
}

static ith_status check_finite(worker *w, int64_t step)
{
    int64_t count = share_numbers(w);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(w->share->x[i]))
            return ith_fail(w->context, ITH_ERR_NUMERIC,
                            "latents are not finite after step %lld of %lld: the run has gone wrong and was stopped",
                            (long long)step + 1, (long long)w->phase->job->options->steps);
    return ITH_OK;
}

/* Every rank's tokens to rank 0 of the sequence, and there into the job's latents. */
static ith_status gather(worker *w)
{
    phase *p = w->phase;
    if (w->comm->rank >= w->sequence->size) /* the other half holds the same */
        return ITH_OK;
    int receive_count = w->sequence->rank == 0 ? w->sequence->size : 0;
    for (int rank = 0; rank < receive_count; rank++) {
        const rank_share *share = &p->shares[rank];
        w->receives[rank] =
            (ith_transfer){rank, whole_region(w->whole + share->begin * p->width, share->count * p->width)};
    }
    ith_transfer send = {0, whole_region(w->share->x, share_numbers(w))};
    ith_status status = ith_comm_exchange(w->sequence, &send, 1, w->receives, receive_count);
    if (!status && receive_count)
        ith_dit_unpatchify(w->whole, p->job->size.channels, &p->shape, 0, token_count(&p->shape), p->job->latents);
    return status;
}

static void keep_for_dump(const worker *w, int64_t step)
{
    ith_dump *dump = w->phase->job->dump;
    int64_t count = ith_latent_count(&dump->size);
    memcpy(dump->latents + step * count, w->phase->job->latents, (size_t)count * sizeof(float));
    dump->steps_done = step + 1;
}

/* Rank 0 asks the caller; the others learn of it when all agree. */
static ith_status ask_to_go_on(worker *w)
{
    return w->comm->rank ? ith_context_check(w->context) : ith_observer_ask(w->context);
}

static ith_status take_step(worker *w, int64_t step)
{
    phase *p = w->phase;
    ith_status status = ith_comm_agree(w->comm, ask_to_go_on(w));
    if (!status)
        status = forward(w, step);
    if (status)
        return status;
    guide(w);
    ith_sampler_step(w->share->sampler, step, w->velocity, w->share->x);
    if ((status = ith_comm_agree(w->comm, check_finite(w, step))))
        return status;
    if (p->job->dump || step + 1 == p->job->options->steps)
        status = gather(w);
    if (status || w->comm->rank)
        return status;
    if (p->job->dump)
        keep_for_dump(w, step);
    p->job->report->steps_done = step + 1;
    ith_observer_show(w->context, ITH_STAGE_DENOISE, (step + 1) * ITH_PROGRESS_UNIT,
                      p->job->options->steps * ITH_PROGRESS_UNIT);
    return ITH_OK;
}

/* ---- One rank, one phase --------------------------------------------------------------------------------------- */

static ith_status worker_buffers(worker *w)
{
    const phase *p = w->phase;
    int64_t count = share_numbers(w);
    w->tokens = ith_alloc(w->context, p->shape.batch * count, sizeof(float), "tokens");
    w->velocity = ith_alloc(w->context, 2 * count, sizeof(float), "velocities");
    if (!w->tokens || !w->velocity)
        return ITH_ERR_MEMORY;
    if (w->comm->rank)
        return ITH_OK;
    w->whole = ith_alloc(w->context, token_count(&p->shape) * p->width, sizeof(float), "gathered tokens");
    w->receives = ith_alloc(w->context, w->sequence->size, sizeof *w->receives, "transfers");
    return w->whole && w->receives ? ITH_OK : ITH_ERR_MEMORY;
}

static ith_status worker_open(worker *w)
{
    phase *p = w->phase;
    int sequence_ranks = ith_denoise_sequence_ranks(p->job->model, p->job->options);
    ith_status status = ITH_OK;
    w->sequence = w->comm;
    if (sequence_ranks < w->comm->size) {
        if ((status = ith_comm_split(w->comm, w->comm->rank / sequence_ranks, w->comm->rank, &w->half)))
            return status;
        w->sequence = w->half;
    }
    if ((status = ith_comm_agree(w->comm, worker_buffers(w))))
        return status;
    const ith_dit_text *text = p->text[w->half && p->guidance > 1 ? w->comm->rank / sequence_ranks : 0];
    double start = ith_clock_seconds();
    status =
        ith_dit_workspace_create(w->context, p->dit, text, &p->shape, p->job->options->attention, w->sequence, &w->run);
    if (status || w->comm->rank)
        return status;
    p->job->report->plan_seconds += ith_clock_seconds() - start;
    ith_plan_print(ith_dit_workspace_plan(w->run), p->job->report->plan, sizeof p->job->report->plan);
    return ITH_OK;
}

static void worker_close(worker *w)
{
    ith_dit_workspace_free(w->context, &w->run);
    ith_comm_destroy(&w->half);
    ith_free(w->context, w->tokens);
    ith_free(w->context, w->velocity);
    ith_free(w->context, w->whole);
    ith_free(w->context, w->receives);
}

static ith_status denoise_rank(ith_context *context, ith_comm *comm, void *user)
{
    phase *p = user;
    worker w = {.context = context, .phase = p, .share = &p->shares[comm->rank], .comm = comm};
    ith_status status = worker_open(&w);
    for (int64_t step = p->first_step; step < p->end_step && !status; step++) {
        double traced = ith_trace_begin(context);
        status = take_step(&w, step);
        if (status == ITH_ERR_INTERRUPTED)
            ith_fail_in(context, status, "denoising step %lld of %lld", (long long)step + 1,
                        (long long)p->job->options->steps);
        ith_trace_end(context, traced, "step", "compute");
    }
    worker_close(&w);
    return status;
}

/* ---- All ranks, both phases ------------------------------------------------------------------------------------ */

static ith_status load_expert(ith_context *context, phase *p)
{
    static const char *const folders[] = {"transformer", "transformer_2"};
    ith_denoise_job *job = p->job;
    double start = ith_clock_seconds(), traced = ith_trace_begin(context);
    char *path = ith_model_path(context, job->model, folders[p->expert]);
    ith_status status = path ? ith_dit_load(context, path, job->types, &p->dit) : ITH_ERR_MEMORY;
    ith_free(context, path);
    if (status == ITH_ERR_INTERRUPTED)
        ith_fail_in(context, status, "loading the %s", folders[p->expert]);
    ith_trace_end(context, traced, "load transformer", "load");
    job->report->load_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    start = ith_clock_seconds(), traced = ith_trace_begin(context);
    int branches = p->guidance > 1 ? 2 : 1;
    if (p->shape.batch == branches)
        status = ith_dit_text_create(context, p->dit, branches, job->text, job->text_count, &p->text[0]);
    else
        for (int branch = 0; branch < branches && !status; branch++)
            status =
                ith_dit_text_create(context, p->dit, 1, &job->text[branch], &job->text_count[branch], &p->text[branch]);
    if (status == ITH_ERR_INTERRUPTED)
        ith_fail_in(context, status, "making the prompts' keys");
    ith_trace_end(context, traced, "text keys", "compute");
    job->report->text_seconds += ith_clock_seconds() - start;
    return status;
}

static ith_status run_phase(ith_context *context, phase *p)
{
    ith_denoise_job *job = p->job;
    ith_status status = load_expert(context, p);
    if (!status) {
        double start = ith_clock_seconds(), planned = job->report->plan_seconds;
        status = ith_run_ranks(context, job->options->ranks, job->options->threads, denoise_rank, p);
        job->report->denoise_seconds += ith_clock_seconds() - start - (job->report->plan_seconds - planned);
    }
    ith_dit_text_free(context, &p->text[0]);
    ith_dit_text_free(context, &p->text[1]);
    ith_dit_free(context, &p->dit);
    return status;
}

/* The steps that fall to one expert follow one another: time steps only go down. */
static int64_t end_of_phase(const ith_denoise_job *job, const ith_sampler *sampler, int64_t first)
{
    bool high = step_is_high(job->model, job->options, ith_sampler_timestep(sampler, first));
    int64_t end = first + 1;
    while (end < job->options->steps &&
           step_is_high(job->model, job->options, ith_sampler_timestep(sampler, end)) == high)
        end++;
    return end;
}

static ith_status run_phases(ith_context *context, ith_denoise_job *job, rank_share *shares)
{
    const ith_generate_options *options = job->options;
    const ith_sampler *sampler = shares[0].sampler;
    ith_status status = ITH_OK;
    for (int64_t first = 0, end = 0; first < options->steps && !status; first = end) {
        end = end_of_phase(job, sampler, first);
        int expert = step_is_high(job->model, options, ith_sampler_timestep(sampler, first)) ? 0 : 1;
        double guidance = options->guidance[expert];
        phase p = {.job = job,
                   .shares = shares,
                   .expert = expert,
                   .first_step = first,
                   .end_step = end,
                   .width = job->size.channels * 4,
                   .guidance = guidance};
        p.shape = (ith_dit_shape){.batch = options->cfg == ITH_CFG_BATCH && guidance > 1 ? 2 : 1,
                                  .frames = job->size.frames,
                                  .height = job->size.height,
                                  .width = job->size.width,
                                  .longest_text = job->text_count[0] > job->text_count[1] ? job->text_count[0]
                                                                                          : job->text_count[1]};
        status = run_phase(context, &p);
    }
    return status;
}

static ith_status make_shares(ith_context *context, const ith_denoise_job *job, rank_share *shares)
{
    const ith_generate_options *options = job->options;
    int sequence_ranks = ith_denoise_sequence_ranks(job->model, options);
    ith_dit_shape shape = {1, job->size.frames, job->size.height, job->size.width, 0};
    int64_t width = job->size.channels * 4;
    const ith_sampling sampling = {
        .solver = options->solver, .sigmas = options->sigmas, .steps = options->steps, .shift = options->shift};
    for (int rank = 0; rank < options->ranks; rank++) {
        rank_share *share = &shares[rank];
        ith_share(token_count(&shape), sequence_ranks, rank % sequence_ranks, &share->begin, &share->count);
        share->x = ith_alloc(context, share->count * width, sizeof(float), "a rank's latents");
        if (!share->x)
            return ITH_ERR_MEMORY;
        ith_status status =
            ith_sampler_create(context, &job->model->scheduler, &sampling, share->count * width, &share->sampler);
        if (status)
            return status;
        ith_dit_patchify(job->latents, job->size.channels, &shape, share->begin, share->count, share->x);
    }
    return ITH_OK;
}

ith_status ith_denoise(ith_context *context, ith_denoise_job *job)
{
    int ranks = job->options->ranks;
    rank_share *shares = ith_alloc_zero(context, ranks, sizeof *shares, "the ranks' shares");
    if (!shares)
        return ITH_ERR_MEMORY;
    ith_status status = make_shares(context, job, shares);
    if (!status)
        status = run_phases(context, job, shares);
    for (int rank = 0; rank < ranks; rank++) {
        ith_free(context, shares[rank].x);
        ith_sampler_destroy(context, &shares[rank].sampler);
    }
    ith_free(context, shares);
    return status;
}
