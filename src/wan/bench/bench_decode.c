/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the decoder of the autoencoder with random weights, on random latents. The stages are the intervals that the
 * layers of the decoder mark in the trace (vae/vae_layers.h). */
#include "bench_call.h"

#include "../../base/size.h"
#include "../../base/sized.h"
#include "../sample/noise.h"
#include "../vae/vae_decoder.h"

#include <string.h>

#define MOST_BASE_DIM 4096
#define MOST_RES_BLOCKS 64
#define MOST_SIDE 65536
#define MOST_FRAMES 1000001

/* The state of one benchmark of a decoder. */
typedef struct decode_bench {
    ith_bench_call call;
    ith_decode_problem problem;
    ith_vae_config config;
    int64_t latent_frames;
    ith_vae *vae;
    float *latents; /* [z_dim, latent_frames, height / 8, width / 8] */
} decode_bench;

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

/* Checks that `value` is `base` plus some multiple of `multiple`. */
static ith_status check_multiple(ith_context *context, const char *name, int64_t value, int64_t base, int64_t multiple)
{
    if ((value - base) % multiple == 0)
        return ITH_OK;
    int64_t below = value - (value - base) % multiple;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %lld; it must be %s of %lld: the nearest are %lld and %lld", name,
                    (long long)value, base ? "one more than a multiple" : "a multiple", (long long)multiple,
                    (long long)below, (long long)(below + multiple));
}

static ith_status read_problem(ith_context *context, const ith_decode_problem *given, ith_decode_problem *p)
{
    *p = (ith_decode_problem)ITH_DECODE_PROBLEM_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_decode_problem, ITH_DECODE_PROBLEM_INIT, given, p);
    if (!status)
        status = ith_bench_check_range(context, "base_dim", p->base_dim, 2, MOST_BASE_DIM);
    if (!status)
        status = check_multiple(context, "base_dim", p->base_dim, 0, 2);
    if (!status)
        status = ith_bench_check_range(context, "res_blocks", p->res_blocks, 1, MOST_RES_BLOCKS);
    if (!status)
        status = ith_bench_check_range(context, "frames", p->frames, 1, MOST_FRAMES);
    if (!status)
        status = check_multiple(context, "frames", p->frames, 1, 4);
    if (!status)
        status = ith_bench_check_range(context, "height", p->height, 8, MOST_SIDE);
    if (!status)
        status = check_multiple(context, "height", p->height, 0, 8);
    if (!status)
        status = ith_bench_check_range(context, "width", p->width, 8, MOST_SIDE);
    return status ? status : check_multiple(context, "width", p->width, 0, 8);
}

static int64_t latent_numbers(const decode_bench *b, int64_t width)
{
    const int64_t stride = b->config.stride_space;
    return b->config.z_dim * b->latent_frames * (b->problem.height / stride) * (width / stride);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Predicts the peak memory with pictures of this width (ith_bench_predict_fn). */
static ith_status predict(void *user, int64_t width, int64_t *bytes)
{
    decode_bench *b = user;
    const int64_t stride = b->config.stride_space;
    ith_status status = ith_vae_decode_bytes(b->call.context, &b->config, b->call.types.products,
                                             b->problem.height / stride, width / stride, NULL, bytes);
    *bytes += b->call.report.weights_bytes + latent_numbers(b, width) * (int64_t)sizeof(float) + ITH_ALLOC_HEADER;
    return status;
}

static ith_status check_memory(void *user)
{
    decode_bench *b = user;
    ith_bench_call *call = &b->call;
    ith_status status =
        ith_vae_random_bytes(call->context, &b->config, call->options.weights, &call->report.weights_bytes);
    if (!status)
        status = predict(b, b->problem.width, &call->report.predicted_bytes);
    if (status)
        return status;
    return ith_bench_call_check_memory(call, predict, b, b->problem.width, b->config.stride_space, "width");
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

/* The listing of the decoder's work: the instructions of convolutions and linear layers, and of the attention. */
typedef struct listing {
    decode_bench *b;
    int product, attention; /* numbers of units of the clock */
} listing;

/* Adds the operations of some work to its stage, which is appended if it is new. The peak of the attention, with its
 * products, is the peak of the attention kernel, which does most of the work. */
static void add_work(void *user, const ith_work *work)
{
    const listing *l = user;
    ith_bench_clock *clock = &l->b->call.clock;
    if (work->kind == ITH_WORK_OF_ROWS)
        return;
    for (int i = 0; i < clock->stage_count; i++)
        if (!strcmp(clock->stages[i].name, work->stage)) {
            clock->stages[i].operations += work->times * work->operations;
            return;
        }
    ith_bench_clock_add(clock, work->stage, work->times * work->operations,
                        strcmp(work->stage, ITH_VAE_ATTENTION) ? l->product : l->attention);
}

/* Counts the operations of every layer of a decoder, which has not been opened. Convolutions use kernels that take each
 * number as one part. */
static ith_status add_layers(decode_bench *b, const ith_vae_decoder *d)
{
    ith_bench_clock *clock = &b->call.clock;
    const ith_attn_problem problem = ith_vae_attention_problem(&d->attention);
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    ith_status status = ith_plan_predict(b->call.context, &problem, &options, 1, 0, true, &info);
    if (status)
        return status;
    listing l = {b, ith_bench_clock_add_product(clock, d->in->conv.kernel->instructions[0]),
                 ith_bench_clock_add_kernel(clock, info.kernel)};
    ith_vae_decoder_list(d, b->latent_frames, &(ith_work_list){add_work, &l});
    ith_bench_clock_add(clock, ITH_VAE_NORMS, 0, ITH_BENCH_NO_UNIT);
    return ITH_OK;
}

static ith_status add_stages(void *user)
{
    decode_bench *b = user;
    const int64_t stride = b->config.stride_space;
    ith_vae_decoder *decoder = NULL;
    ith_status status = ith_vae_decoder_create(b->call.context, b->vae, b->problem.height / stride,
                                               b->problem.width / stride, NULL, &decoder);
    if (!status)
        status = add_layers(b, decoder);
    ith_vae_decoder_free(&decoder);
    return status;
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

static ith_status take_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    (void)user, (void)index, (void)frame, (void)height, (void)width;
    return ITH_OK;
}

/* The decoder's own progress is shown, so the span is not needed. */
static ith_status decode(void *user, const ith_span *span)
{
    decode_bench *b = user;
    const int64_t stride = b->config.stride_space;
    (void)span;
    return ith_vae_decode(b->call.context, b->vae, b->latents, b->latent_frames, b->problem.height / stride,
                          b->problem.width / stride, NULL, take_frame, NULL, NULL);
}

static ith_status make(void *user)
{
    decode_bench *b = user;
    ith_context *context = b->call.context;
    const int64_t count = latent_numbers(b, b->problem.width);
    ith_status status =
        ith_vae_make_random(context, &b->config, b->call.types.products, b->call.options.weights, &b->vae);
    if (status)
        return status;
    b->latents = ith_alloc(context, count, sizeof *b->latents, "a benchmark's latents");
    return b->latents ? ith_noise_make(context, 0, 0, count, b->latents) : ITH_ERR_MEMORY;
}

static void destroy(void *user)
{
    decode_bench *b = user;
    ith_vae_free(b->call.context, &b->vae);
    ith_free(b->call.context, b->latents);
}

static const ith_bench_kind kind = {
    .whole = "decode",
    .check_memory = check_memory,
    .make = make,
    .add_stages = add_stages,
    .run = decode,
    .destroy = destroy,
};

ith_status ith_bench_decode(ith_context *context, const ith_decode_problem *problem, const ith_bench_options *options,
                            ith_bench_report *report)
{
    decode_bench b = {0};
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = read_problem(context, problem, &b.problem);
    if (status)
        return status;
    ith_vae_config_usual(b.problem.base_dim, b.problem.res_blocks, &b.config);
    b.latent_frames = (b.problem.frames - 1) / b.config.stride_time + 1;
    return ith_bench_call_perform(&b.call, context, options, report, &kind, &b);
}
