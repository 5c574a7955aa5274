/* SPDX-License-Identifier: Apache-2.0 */
/* Measures layers of the transformer with random weights, at the rows that a rank computes. A wide model is measured at
 * a smaller width, and many rows in part: the rate of a product hardly grows beyond these sizes. A narrow model is
 * measured with several layers, whose weights are not in a cache when their turn comes. */
#include "../../base/clock.h"
#include "../../base/size.h"
#include "../dit/dit_workspace.h"
#include "../run/denoise/denoise_choice.h"
#include "../sample/noise.h"
#include "video_meter.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

#define MOST_WIDTH 1024
#define MOST_FFN 3072
#define MOST_TOKENS 2048
#define COLD_BYTES (4 << 20) /* weights of the layers that are measured: more than a second-level cache holds */
#define MOST_LAYERS 8
#define FIRST_TOKENS 64 /* rows of the pass that gives the time of a row */
#define FEW_TOKENS 16   /* rows of the passes in which calls take most of the time */
#define LEAST_REPEATS 3
#define MOST_REPEATS 20
#define PASS "pass" /* name of the stage of a whole pass */

/* A layer, and the tokens that pass through it. */
typedef struct layer_run {
    ith_video_meter *meter;
    ith_dit_config config;
    ith_dit_shape shape;
    int64_t batch, text_rows[2]; /* guidance branches, and the rows of their prompts */
    ith_attn_options options;
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_workspace *workspace;
    float *buffer; /* tokens, output, rows of the prompt */
    ith_stage_clock clock;
    double worked;  /* the least processor time of a pass */
    bool disturbed; /* other programs have taken the processor during the last run */
    /* Seconds of one unit, with one thread and with all threads: products of the layer, products before the first layer
     * and after the last one, self-attention, cross-attention. */
    double products[2], ends[2], self[2], cross[2];
    double few; /* seconds of the products of a layer with few tokens, with all threads */
} layer_run;

/* One latent frame of 1 x n patches has n tokens, of each branch. tokens: of all branches. */
static void set_tokens(layer_run *r, int64_t tokens)
{
    r->shape = (ith_dit_shape){.batch = r->batch,
                               .frames = 1,
                               .height = 2,
                               .width = 2 * ith_max64(tokens / r->batch, 1),
                               .longest_text = ith_max64(r->text_rows[0], r->text_rows[1])};
}

static int64_t tokens_of(const layer_run *r)
{
    return r->shape.width / 2 * r->batch;
}

static void free_run(layer_run *r)
{
    ith_context *context = r->meter->context;
    ith_dit_workspace_free(context, &r->workspace);
    ith_dit_text_free(context, &r->text);
    ith_free(context, r->buffer);
    r->buffer = NULL;
}

static ith_status make_run(layer_run *r, int64_t tokens)
{
    ith_context *context = r->meter->context;
    set_tokens(r, tokens);
    const int64_t numbers = tokens_of(r) * r->config.in_channels * ITH_DIT_PATCH;
    const int64_t text = r->shape.longest_text * r->config.text_dim;
    r->buffer = ith_alloc(context, 2 * numbers + text, sizeof(float), "the tokens of a measurement");
    ith_status status = r->buffer ? ith_noise_make(context, 0, 0, 2 * numbers + text, r->buffer) : ITH_ERR_MEMORY;
    const float *prompt = r->buffer ? r->buffer + 2 * numbers : NULL, *rows[2] = {prompt, prompt};
    if (!status)
        status = ith_dit_text_create(context, r->dit, r->batch, rows, r->text_rows, &r->text);
    if (!status)
        status = ith_dit_workspace_create(context, r->dit, r->text, &r->shape, &r->options, NULL, &r->workspace);
    return status;
}

static ith_status pass(layer_run *r)
{
    static const float time[2] = {500, 500};
    const int64_t numbers = tokens_of(r) * r->config.in_channels * ITH_DIT_PATCH;
    ith_stage_clock_begin(&r->clock);
    const ith_dit_tokens tokens = {.latents = r->buffer};
    const double begin = ith_stage_clock_now(&r->clock), work = ith_clock_thread_seconds();
    ith_status status = ith_dit_forward(r->meter->context, r->workspace, &tokens, time, r->buffer + numbers);
    ith_stage_clock_add(&r->clock, PASS, ith_stage_clock_now(&r->clock) - begin);
    r->worked = fmin(r->worked, ith_clock_thread_seconds() - work);
    ith_stage_clock_end(&r->clock);
    return status;
}

/* Repeats passes of `tokens` tokens, at least LEAST_REPEATS and until the time `until` has come. */
static ith_status run(layer_run *r, int64_t tokens, int64_t threads, double until)
{
    r->worked = INFINITY;
    const ith_video_moment began = ith_video_moment_now();
    omp_set_num_threads((int)threads);
    ith_status status = make_run(r, tokens);
    if (!status)
        status = ith_stage_clock_open(&r->clock, r->meter->context, threads == 1);
    if (!status) {
        for (int i = 0; i < MOST_REPEATS && !status; i++)
            if (i < LEAST_REPEATS || ith_clock_seconds() < until)
                status = pass(r);
        ith_stage_clock_close(&r->clock, r->meter->context);
    }
    r->disturbed = ith_video_meter_disturbed(&began);
    return status;
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

/* The products and the operations on rows of a list. */
typedef struct total {
    double calls, operations, bytes;
    bool f32; /* counts products whose operands are f32 in every precision; otherwise the others */
} total;

static void add(void *user, const ith_work *work)
{
    total *t = user;
    if (work->kind == ITH_WORK_OF_LINEAR && work->in_f32 == t->f32)
        t->calls += work->times, t->operations += work->times * work->operations;
    if (work->kind == ITH_WORK_OF_ROWS)
        t->bytes += work->times * work->bytes;
}

/* Seconds of the products of a layer. */
static double measured_product_seconds(const layer_run *r)
{
    static const char *const stages[] = {"qkv", "project", "ffn"};
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += ith_stage_clock_seconds(&r->clock, stages[i]);
    return sum / (double)r->config.layers;
}

/* Keeps the times of a run. */
static void keep(layer_run *r, const total *layer, const total *outside, int64_t threads, int index)
{
    const ith_video_meter *m = r->meter;
    const ith_stage_clock *clock = &r->clock;
    const double rest = fmax(ith_stage_clock_seconds(clock, PASS) - ith_stage_clock_seconds(clock, "block"), 0),
                 layers = (double)r->config.layers;
    r->products[index] = ith_video_meter_without_rows(m, measured_product_seconds(r), layer->bytes, threads);
    r->ends[index] = ith_video_meter_without_rows(m, rest, outside->bytes, threads);
    const double units = ith_video_units(&m->place.view.machine, threads) / layers;
    r->self[index] = ith_stage_clock_seconds(clock, "self attention") * units;
    r->cross[index] = ith_stage_clock_seconds(clock, "cross attention") * units;
}

/* The calls and the operations of an attention. */
typedef struct attention_work {
    double calls, operations;
} attention_work;

/* Counts the calls and the operations of an attention. A block with fewer queries counts as a part of a call. */
static attention_work work_of(const ith_attn_problem *p, const ith_plan_info *info)
{
    const double queries = (double)(p->batch * p->heads) * (double)p->q_len;
    return (attention_work){queries / (double)info->block_q * (double)ith_div_up(p->kv_len, info->block_kv),
                            4 * queries * (double)p->kv_len * (double)p->head_dim};
}

/* Sets the rate of the attention kernel, over all parts of an execution, and the time of a call. The equation
 *
 *   calls * call_seconds + operations / rate = seconds,
 *
 * once for self-attention and once for cross-attention, gives both: calls take most of the time of cross-attention,
 * because it has few keys. */
static ith_status add_attention(layer_run *r)
{
    ith_machine_attention *row = &r->meter->attention;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_attn_problem problems[2];
    ith_status status = ith_plan_describe(ith_dit_workspace_plan(r->workspace), &info);
    if (status)
        return status;
    ith_dit_problems(r->dit, &r->shape, 1, 0, &problems[0], &problems[1]);
    const attention_work self = work_of(&problems[0], &info), cross = work_of(&problems[1], &info);
    const double self_seconds = ith_video_meter_choose(r->self[0], r->self[1], r->disturbed);
    const double cross_seconds = ith_video_meter_choose(r->cross[0], r->cross[1], r->disturbed);
    double call = (cross_seconds * self.operations - self_seconds * cross.operations) /
                  (cross.calls * self.operations - self.calls * cross.operations);
    call = fmax(fmin(call, self_seconds / (2 * self.calls)), 0); /* in case other programs have disturbed the times */
    snprintf(row->kernel, sizeof row->kernel, "%s", info.kernel);
    row->dtype = r->meter->model->types.attention, row->softmax = info.softmax, row->head_dim = r->config.head_dim;
    row->block_q = info.block_q, row->block_kv = info.block_kv;
    row->block_kv_compute = info.block_kv_compute, row->block_kv_compute_in = info.block_kv_compute_in;
    row->call_seconds = call;
    row->gflops = 1e-9 * self.operations / (self_seconds - call * self.calls);
    return ITH_OK;
}

/* The time of a call of a linear layer, from the equation calls * call_seconds + operations / rate = seconds for few
 * tokens and for many. */
static double call_seconds(const layer_run *r, const total *layer, double unit_seconds, int64_t threads)
{
    total few = {0};
    layer_run with_few = *r;
    set_tokens(&with_few, FEW_TOKENS);
    ith_dit_list_layer(r->dit, &with_few.shape, 1, 0, &(ith_work_list){add, &few});
    const double share = few.operations / layer->operations;
    const double seconds = unit_seconds / ith_video_units(&r->meter->place.view.machine, threads);
    const double calls = share < 0.5 ? (r->few - seconds * share) / (1 - share) : 0;
    return fmin(fmax(calls, 0), seconds / 2) / layer->calls;
}

static ith_status add_rates(layer_run *r, const total *layer, const total *outside, int64_t threads)
{
    ith_video_meter *m = r->meter;
    const int64_t rows = tokens_of(r), dim = r->config.dim, ends = r->config.in_channels * ITH_DIT_PATCH;
    const double seconds = ith_video_meter_choose(r->products[0], r->products[1], r->disturbed);
    const double call = call_seconds(r, layer, seconds, threads);
    const double calls = call * ith_video_units(&m->place.view.machine, threads);
    ith_machine_product row = {.work = ITH_WORK_LINEAR, .rows = rows, .features = dim, .call_seconds = call};
    row.dtype = m->model->types.products.rounded;
    ith_video_meter_add(m, &row, layer->operations, seconds - layer->calls * calls);
    const double rest = ith_video_meter_choose(r->ends[0], r->ends[1], r->disturbed);
    row.dtype = ITH_F32, row.features = ith_min64(ends, dim);
    ith_video_meter_add(m, &row, outside->operations, fmax(rest - outside->calls * calls, rest / 2));
    return add_attention(r);
}

/* The rows that fit into the time, if a row takes row_seconds. */
static int64_t rows_that_fit(const layer_run *r, int64_t wanted, double row_seconds)
{
    const double left = r->meter->until - ith_clock_seconds();
    return ith_max64(ith_min64(wanted, (int64_t)(left / (LEAST_REPEATS * row_seconds))), FIRST_TOKENS);
}

/* Measures few tokens. *row_seconds: the time of a row with all threads, computed from the processor time with one
 * thread, which other programs hardly change. */
static ith_status measure_few(layer_run *r, int64_t threads, double *row_seconds)
{
    ith_status status = run(r, FIRST_TOKENS, 1, 0);
    *row_seconds = r->worked / (double)(FIRST_TOKENS * threads);
    free_run(r);
    if (!status)
        status = run(r, FEW_TOKENS, threads, 0);
    r->few = measured_product_seconds(r);
    free_run(r);
    return status;
}

/* Measures `rows` tokens with all threads, and if other programs have disturbed them, with one thread too. */
static ith_status measure_rows(layer_run *r, int64_t rows, int64_t threads, total *layer, total *outside)
{
    ith_status status = run(r, rows, threads, r->meter->until);
    const bool disturbed = r->disturbed;
    ith_dit_list_layer(r->dit, &r->shape, 1, 0, &(ith_work_list){add, layer});
    ith_dit_list_ends(r->dit, &r->shape, 1, 0, &(ith_work_list){add, outside});
    keep(r, layer, outside, threads, 1);
    if (!status && disturbed && threads > 1) {
        free_run(r);
        status = run(r, rows, 1, 0);
    }
    keep(r, layer, outside, disturbed ? 1 : threads, 0);
    r->disturbed = disturbed;
    return status;
}

static ith_status measure(layer_run *r)
{
    const ith_video_meter *m = r->meter;
    const ith_dit_shape shape = ith_video_shape(m->model, r->batch);
    const int64_t threads = ith_min64(m->place.rank_threads, omp_get_num_procs());
    total layer = {0}, outside = {.f32 = true};
    ith_attn_problem self, cross;
    const int64_t rows = ith_dit_problems(r->dit, &shape, m->sequence_ranks, 0, &self, &cross);
    double row_seconds = 0;
    ith_status status = measure_few(r, threads, &row_seconds);
    if (!status)
        status =
            measure_rows(r, rows_that_fit(r, ith_min64(rows, MOST_TOKENS), row_seconds), threads, &layer, &outside);
    if (!status)
        status = add_rates(r, &layer, &outside, threads);
    free_run(r);
    return status;
}

ith_status ith_video_measure_layer(ith_video_meter *m)
{
    const ith_attn_options *o = m->options;
    layer_run r = {.meter = m, .config = m->model->model.dit[0], .options = ITH_ATTN_OPTIONS_INIT};
    r.options.kernel = o->kernel, r.options.softmax = o->softmax, r.options.smooth = o->smooth;
    r.options.block_q = o->block_q, r.options.block_kv = o->block_kv;
    r.options.block_kv_compute = o->block_kv_compute, r.options.block_kv_compute_in = o->block_kv_compute_in;
    r.config.text_dim = ith_min64(r.config.text_dim, MOST_WIDTH);
    r.config.heads = ith_max64(ith_min64(r.config.heads, MOST_WIDTH / r.config.head_dim), 1);
    r.config.dim = r.config.heads * r.config.head_dim;
    r.config.ffn_dim = ith_min64(r.config.ffn_dim, MOST_FFN);
    r.config.image_dim = r.config.image_rows = 0; /* the keys of images have the same rates */
    const int64_t layer_bytes = 2 * r.config.dim * (6 * r.config.dim + 2 * r.config.ffn_dim); /* of bf16 */
    r.config.layers = ith_min64(ith_min64(ith_div_up(COLD_BYTES, layer_bytes), MOST_LAYERS), r.config.layers);
    r.batch = ith_denoise_batch(&m->model->model, &m->model->options);
    for (int i = 0; i < 2; i++)
        r.text_rows[i] = ith_max64(m->model->counts[i], 1);
    ith_status status =
        ith_dit_make_random(m->context, &r.config, ITH_BF16, &(ith_dit_choices){.types = m->model->types}, &r.dit);
    if (!status)
        status = measure(&r);
    ith_dit_free(m->context, &r.dit);
    return status;
}
