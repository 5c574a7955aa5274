/* SPDX-License-Identifier: Apache-2.0 */
/* Measures one layer of the transformer with random weights, at the rows that a rank computes. A wide model is measured
 * at a smaller width, and many rows in part: the rate of a product hardly grows beyond these sizes. */
#include "../../base/clock.h"
#include "../../base/size.h"
#include "../dit/dit_workspace.h"
#include "../sample/denoise.h"
#include "../sample/noise.h"
#include "video_measure.h"

#include <omp.h>
#include <string.h>

#define MOST_WIDTH 1536
#define MOST_FFN 6144
#define MOST_TOKENS 2048
#define FIRST_TOKENS 64 /* rows of the pass that says how long a row takes */
#define LEAST_REPEATS 2
#define MOST_REPEATS 20

/* A layer, and the tokens that pass through it. */
typedef struct layer_run {
    ith_video_meter *meter;
    ith_dit_config config;
    ith_dit_shape shape;
    int64_t text_rows, threads;
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_workspace *workspace;
    float *buffer; /* tokens, output, rows of the prompt */
    ith_stage_clock clock;
    double pass; /* fastest time of a pass */
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
        status = ith_dit_workspace_create(context, r->dit, r->text, &r->shape, NULL, NULL, &r->workspace);
    return status;
}

static ith_status pass(layer_run *r)
{
    static const float time = 500;
    const int64_t numbers = r->shape.width / 2 * r->config.in_channels * ITH_DIT_PATCH;
    ith_stage_clock_begin(&r->clock);
    const double begin = ith_clock_seconds();
    ith_status status = ith_dit_forward(r->meter->context, r->workspace, r->buffer, &time, r->buffer + numbers);
    const double seconds = ith_clock_seconds() - begin;
    if (r->pass == 0 || seconds < r->pass)
        r->pass = seconds;
    ith_stage_clock_end(&r->clock);
    return status;
}

/* Repeats passes of `tokens` tokens, at least `least` and until the time has come. */
static ith_status run(layer_run *r, int64_t tokens, int least, int most)
{
    r->pass = 0;
    ith_status status = make_run(r, tokens);
    if (!status)
        status = ith_stage_clock_open(&r->clock, r->meter->context);
    if (!status) {
        for (int i = 0; i < most && !status; i++)
            if (i < least || ith_clock_seconds() < r->meter->until)
                status = pass(r);
        ith_stage_clock_close(&r->clock, r->meter->context);
    }
    free_run(r);
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

static void add_rates(layer_run *r)
{
    ith_video_meter *m = r->meter;
    const ith_stage_clock *clock = &r->clock;
    const int64_t rows = r->shape.width / 2, dim = r->config.dim, ends = r->config.in_channels * ITH_DIT_PATCH;
    total layer = {0}, outside = {.f32 = true};
    ith_dit_list_layer(r->dit, &r->shape, 1, 0, &(ith_work_list){add, &layer});
    ith_dit_list_ends(r->dit, &r->shape, 1, 0, &(ith_work_list){add, &outside});
    double seconds = ith_stage_clock_seconds(clock, "qkv") + ith_stage_clock_seconds(clock, "project") +
                     ith_stage_clock_seconds(clock, "ffn");
    seconds = ith_video_meter_without_rows(m, seconds, layer.bytes, r->threads);
    ith_video_meter_add(m, ITH_WORK_LINEAR, m->model->types.products.rounded, rows, dim, layer.operations, seconds,
                        r->threads);
    seconds =
        ith_video_meter_without_rows(m, r->pass - ith_stage_clock_seconds(clock, "block"), outside.bytes, r->threads);
    ith_video_meter_add(m, ITH_WORK_LINEAR, ITH_F32, rows, ith_min64(ends, dim), outside.operations, seconds,
                        r->threads);
}

/* The rows of the largest share of a rank that fit into the time, if a first pass with few rows took `seconds`. */
static int64_t rows_that_fit(const layer_run *r, int64_t wanted, int64_t tried, double seconds)
{
    const double left = r->meter->until - ith_clock_seconds(), passes = left / (LEAST_REPEATS * seconds);
    return ith_max64(ith_min64(wanted, (int64_t)(passes * (double)tried)), tried);
}

static ith_status measure(layer_run *r)
{
    const ith_video_meter *m = r->meter;
    const ith_dit_shape shape = ith_video_shape(m->model, ith_denoise_batch(&m->model->model, &m->model->options));
    ith_attn_problem self, cross;
    const int64_t rows = ith_min64(ith_dit_problems(r->dit, &shape, m->sequence_ranks, 0, &self, &cross), MOST_TOKENS);
    const int64_t first = ith_min64(rows, FIRST_TOKENS);
    ith_status status = run(r, first, 2, 2);
    if (!status)
        status = run(r, rows_that_fit(r, rows, first, r->pass), LEAST_REPEATS, MOST_REPEATS);
    if (!status)
        add_rates(r);
    return status;
}

ith_status ith_video_measure_layer(ith_video_meter *m)
{
    layer_run r = {.meter = m, .config = m->model->model.dit[0], .threads = m->place.rank_threads};
    r.config.layers = 1, r.config.text_dim = ith_min64(r.config.text_dim, MOST_WIDTH);
    r.config.heads = ith_max64(ith_min64(r.config.heads, MOST_WIDTH / r.config.head_dim), 1);
    r.config.dim = r.config.heads * r.config.head_dim;
    r.config.ffn_dim = ith_min64(r.config.ffn_dim, MOST_FFN);
    r.text_rows = ith_max64(m->model->counts[0], 1);
    r.threads = ith_min64(r.threads, omp_get_num_procs());
    omp_set_num_threads((int)r.threads);
    ith_status status = ith_dit_make_random(m->context, &r.config, m->model->types, ITH_BF16, &r.dit);
    if (!status)
        status = measure(&r);
    ith_dit_free(m->context, &r.dit);
    return status;
}
