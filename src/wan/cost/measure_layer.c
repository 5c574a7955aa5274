/* SPDX-License-Identifier: Apache-2.0 */
/* Measures layers of the transformer with random weights, at the rows that a rank computes. A wide model is measured at
 * a smaller width, and many rows in part: the rate of a product hardly grows beyond these sizes. A narrow model is
 * measured with several layers, whose weights are not in a cache when their turn comes. */
#include "../../base/clock.h"
#include "../../base/size.h"
#include "../dit/dit_workspace.h"
#include "../sample/denoise.h"
#include "../sample/noise.h"
#include "video_measure.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

#define MOST_WIDTH 1024
#define MOST_FFN 3072
#define MOST_TOKENS 2048
#define COLD_BYTES (8 << 20) /* weights of the layers that are measured: more than a second-level cache holds */
#define MOST_LAYERS 8
#define FIRST_TOKENS 64 /* rows of the pass that gives the time of a row */
#define LEAST_REPEATS 2
#define MOST_REPEATS 20

/* A layer, and the tokens that pass through it. */
typedef struct layer_run {
    ith_video_meter *meter;
    ith_dit_config config;
    ith_dit_shape shape;
    int64_t text_rows;
    ith_attn_options options;
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_workspace *workspace;
    float *buffer; /* tokens, output, rows of the prompt */
    ith_stage_clock clock;
    double pass;   /* fastest time of a pass */
    double worked; /* the least time of the processor for a pass */
    /* seconds of one unit, with one thread and with all: the products of the layer, those outside, and the attentions
     */
    double products[2], ends[2], self[2], cross[2];
} layer_run;

/* One latent frame of 1 x n patches has n tokens. */
static void set_tokens(layer_run *r, int64_t tokens)
{
    r->shape = (ith_dit_shape){.batch = 1, .frames = 1, .height = 2, .width = 2 * tokens, .longest_text = r->text_rows};
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
    const int64_t numbers = tokens * r->config.in_channels * ITH_DIT_PATCH, text = r->text_rows * r->config.text_dim;
    set_tokens(r, tokens);
    r->buffer = ith_alloc(context, 2 * numbers + text, sizeof(float), "the tokens of a measurement");
    ith_status status = r->buffer ? ith_noise_make(context, 0, 0, 2 * numbers + text, r->buffer) : ITH_ERR_MEMORY;
    const float *rows = r->buffer ? r->buffer + 2 * numbers : NULL;
    if (!status)
        status = ith_dit_text_create(context, r->dit, 1, &rows, &r->text_rows, &r->text);
    if (!status)
        status = ith_dit_workspace_create(context, r->dit, r->text, &r->shape, &r->options, NULL, &r->workspace);
    return status;
}

static ith_status pass(layer_run *r)
{
    static const float time = 500;
    const int64_t numbers = r->shape.width / 2 * r->config.in_channels * ITH_DIT_PATCH;
    ith_stage_clock_begin(&r->clock);
    const double begin = ith_stage_clock_now(&r->clock), work = ith_clock_thread_seconds();
    ith_status status = ith_dit_forward(r->meter->context, r->workspace, r->buffer, &time, r->buffer + numbers);
    r->pass = fmin(r->pass, ith_stage_clock_now(&r->clock) - begin);
    r->worked = fmin(r->worked, ith_clock_thread_seconds() - work);
    ith_stage_clock_end(&r->clock);
    return status;
}

/* Repeats passes of `tokens` tokens, at least LEAST_REPEATS and until the time `until` has come. */
static ith_status run(layer_run *r, int64_t tokens, int64_t threads, double until)
{
    r->pass = r->worked = INFINITY;
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
    return status;
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

/* The products and the operations on rows of a list. */
typedef struct total {
    double operations, bytes;
    bool f32; /* counts products whose operands are f32 in every precision; otherwise the others */
} total;

static void add(void *user, const ith_work *work)
{
    total *t = user;
    if (work->kind == ITH_WORK_OF_LINEAR && work->in_f32 == t->f32)
        t->operations += work->times * work->operations;
    if (work->kind == ITH_WORK_OF_ROWS)
        t->bytes += work->times * work->bytes;
}

/* Keeps the times of a run. */
static void keep(layer_run *r, const total *layer, const total *outside, int64_t threads, int index)
{
    const ith_video_meter *m = r->meter;
    const ith_stage_clock *clock = &r->clock;
    const double linear = ith_stage_clock_seconds(clock, "qkv") + ith_stage_clock_seconds(clock, "project") +
                          ith_stage_clock_seconds(clock, "ffn");
    const double rest = fmax(r->pass - ith_stage_clock_seconds(clock, "block"), 0), layers = (double)r->config.layers;
    r->products[index] = ith_video_meter_without_rows(m, linear / layers, layer->bytes, threads);
    r->ends[index] = ith_video_meter_without_rows(m, rest, outside->bytes, threads);
    const double units = ith_video_units(&m->place.view.machine, threads) / layers;
    r->self[index] = ith_stage_clock_seconds(clock, "self attention") * units;
    r->cross[index] = ith_stage_clock_seconds(clock, "cross attention") * units;
}

/* The calls and the operations of an attention. */
typedef struct attention_work {
    double calls, operations;
} attention_work;

/* A block with fewer queries counts as a part of a call. */
static attention_work work_of(const ith_attn_problem *p, const ith_plan_info *info)
{
    const double queries = (double)(p->batch * p->heads) * (double)p->q_len;
    return (attention_work){queries / (double)info->block_q * (double)ith_div_up(p->kv_len, info->block_kv),
                            4 * queries * (double)p->kv_len * (double)p->head_dim};
}

/* The kernel of self-attention, with its rate over everything that an execution does. Cross-attention has few keys, so
 * that calls take most of its time. Two equations, calls * c + operations / rate = seconds, give both figures. */
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
    const double self_seconds = ith_video_meter_choose(r->self[0], r->self[1]);
    const double cross_seconds = ith_video_meter_choose(r->cross[0], r->cross[1]);
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

static ith_status add_rates(layer_run *r, const total *layer, const total *outside)
{
    ith_video_meter *m = r->meter;
    const int64_t rows = r->shape.width / 2, dim = r->config.dim, ends = r->config.in_channels * ITH_DIT_PATCH;
    ith_video_meter_add(m, ITH_WORK_LINEAR, m->model->types.products.rounded, rows, dim, layer->operations,
                        ith_video_meter_choose(r->products[0], r->products[1]));
    ith_video_meter_add(m, ITH_WORK_LINEAR, ITH_F32, rows, ith_min64(ends, dim), outside->operations,
                        ith_video_meter_choose(r->ends[0], r->ends[1]));
    return add_attention(r);
}

/* The rows that fit into the time: two repeats with one thread and two with several. A first run with `tried` rows
 * gives the time of a row, in time of the processor, which other programs hardly change. */
static int64_t rows_that_fit(const layer_run *r, int64_t wanted, int64_t tried)
{
    const double left = r->meter->until - ith_clock_seconds(), passes = left / (2 * LEAST_REPEATS * r->worked);
    return ith_max64(ith_min64(wanted, (int64_t)(passes * (double)tried)), tried);
}

static ith_status measure(layer_run *r)
{
    const ith_video_meter *m = r->meter;
    const ith_dit_shape shape = ith_video_shape(m->model, ith_denoise_batch(&m->model->model, &m->model->options));
    const int64_t threads = ith_min64(m->place.rank_threads, omp_get_num_procs());
    total layer = {0}, outside = {.f32 = true};
    ith_attn_problem self, cross;
    int64_t rows = ith_min64(ith_dit_problems(r->dit, &shape, m->sequence_ranks, 0, &self, &cross), MOST_TOKENS);
    const int64_t first = ith_min64(rows, FIRST_TOKENS);
    ith_status status = run(r, first, 1, 0);
    rows = rows_that_fit(r, rows, first);
    for (int i = 0; i < 2 && !status; i++) {
        const double now = ith_clock_seconds(), left = m->until - now;
        free_run(r);
        status = run(r, rows, i ? threads : 1, i ? m->until : now + left / 2);
        if (!i) {
            ith_dit_list_layer(r->dit, &r->shape, 1, 0, &(ith_work_list){add, &layer});
            ith_dit_list_ends(r->dit, &r->shape, 1, 0, &(ith_work_list){add, &outside});
        }
        keep(r, &layer, &outside, i ? threads : 1, i);
    }
    if (!status)
        status = add_rates(r, &layer, &outside);
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
    const int64_t layer_bytes = 2 * r.config.dim * (6 * r.config.dim + 2 * r.config.ffn_dim); /* of bf16 */
    r.config.layers = ith_min64(ith_min64(ith_div_up(COLD_BYTES, layer_bytes), MOST_LAYERS), r.config.layers);
    r.text_rows = ith_max64(m->model->counts[0], 1);
    ith_status status = ith_dit_make_random(m->context, &r.config, m->model->types, ITH_BF16, &r.dit);
    if (!status)
        status = measure(&r);
    ith_dit_free(m->context, &r.dit);
    return status;
}
