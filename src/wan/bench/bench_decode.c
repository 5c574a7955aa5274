/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the decoder of the autoencoder with random weights, on random latents, or the encoder on frames whose rows
 * are all equal and random. The stages are the intervals that the layers mark in the trace (vae/vae_layers.h). */
#include "bench_call.h"

#include "../../base/size.h"
#include "../../base/sized.h"
#include "../part/multiple.h"
#include "../sample/noise.h"
#include "../vae/vae_decoder.h"
#include "../vae/vae_encoder.h"

#include <string.h>

#define MOST_BASE_DIM 4096
#define MOST_RES_BLOCKS 64
#define MOST_SIDE 65536
#define MOST_FRAMES 1000001

/* The state of one benchmark of a decoder or an encoder. */
typedef struct decode_bench {
    ith_bench_call call;
    ith_vae_half half;
    ith_decode_problem problem;
    ith_vae_config config;
    int64_t latent_frames;
    ith_vae *vae;
    float *latents; /* [z_dim, latent_frames, height / stride, width / stride] */
    float *row;     /* [width, 3]: a row of each frame that is encoded */
} decode_bench;

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

static ith_status read_problem(ith_context *context, const ith_decode_problem *given, ith_decode_problem *p)
{
    *p = (ith_decode_problem)ITH_DECODE_PROBLEM_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_decode_problem, ITH_DECODE_PROBLEM_INIT, given, p);
    if (!status)
        status = ith_bench_check_range(context, "vae", p->vae, 21, 22);
    const int64_t stride = p->vae == 22 ? 16 : 8;
    if (!status)
        status = ith_bench_check_range(context, "base_dim", p->base_dim, 2, MOST_BASE_DIM);
    if (!status)
        status = ith_multiple_check(context, "base_dim", p->base_dim, 0, 2, MOST_BASE_DIM);
    if (!status)
        status = ith_bench_check_range(context, "res_blocks", p->res_blocks, 1, MOST_RES_BLOCKS);
    if (!status)
        status = ith_bench_check_range(context, "frames", p->frames, 1, MOST_FRAMES);
    if (!status)
        status = ith_multiple_check(context, "frames", p->frames, 1, 4, MOST_FRAMES);
    if (!status)
        status = ith_bench_check_range(context, "height", p->height, stride, MOST_SIDE);
    if (!status)
        status = ith_multiple_check(context, "height", p->height, 0, stride, MOST_SIDE);
    if (!status)
        status = ith_bench_check_range(context, "width", p->width, stride, MOST_SIDE);
    return status ? status : ith_multiple_check(context, "width", p->width, 0, stride, MOST_SIDE);
}

/* The size of the latents of pictures of this width. */
static ith_vae_extent extent_of(const decode_bench *b, int64_t width)
{
    const int64_t stride = b->config.stride_space;
    return (ith_vae_extent){b->latent_frames, b->problem.height / stride, width / stride, NULL};
}

static int64_t latent_numbers(const decode_bench *b, int64_t width)
{
    const ith_vae_extent extent = extent_of(b, width);
    return b->config.z_dim * extent.frames * extent.height * extent.width;
}

/* The numbers of `latents` and of `row`, in one allocation. */
static int64_t numbers(const decode_bench *b, int64_t width)
{
    return latent_numbers(b, width) + (b->half == ITH_VAE_ENCODER ? width * 3 : 0);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Predicts the peak memory with pictures of this width (ith_bench_predict_fn). */
static ith_status predict(void *user, int64_t width, int64_t *bytes)
{
    decode_bench *b = user;
    ith_context *context = b->call.context;
    const ith_operand_types types = b->call.types.products;
    const ith_vae_extent extent = extent_of(b, width);
    ith_status status = b->half == ITH_VAE_DECODER ? ith_vae_decode_bytes(context, &b->config, types, &extent, bytes)
                                                   : ith_vae_encode_bytes(context, &b->config, types, &extent, bytes);
    *bytes += b->call.report.weights_bytes + numbers(b, width) * (int64_t)sizeof(float) + ITH_ALLOC_HEADER;
    return status;
}

static ith_status check_memory(void *user)
{
    decode_bench *b = user;
    ith_bench_call *call = &b->call;
    ith_status status =
        ith_vae_random_bytes(call->context, &b->config, b->half, call->options.weights, &call->report.weights_bytes);
    if (!status)
        status = predict(b, b->problem.width, &call->report.predicted_bytes);
    if (status)
        return status;
    return ith_bench_call_check_memory(call, predict, b, b->problem.width, b->config.stride_space, "width");
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

/* The listing of the work: the instructions of convolutions and linear layers, and of the attention. */
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

/* Counts the operations of all layers, whose memory is not allocated. Convolutions use kernels that take each number as
 * one part. */
static ith_status add_layers(decode_bench *b, const ith_vae_work *work)
{
    ith_bench_clock *clock = &b->call.clock;
    const ith_attn_problem problem = ith_vae_attention_problem(&work->middle.attention);
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    ith_status status = ith_plan_predict(b->call.context, &problem, &options, 1, 0, true, &info);
    if (status)
        return status;
    listing l = {b, ith_bench_clock_add_product(clock, work->convs[0].conv.kernel->instructions[0]),
                 ith_bench_clock_add_kernel(clock, info.kernel)};
    ith_vae_work_list(work, b->latent_frames, &(ith_work_list){add_work, &l});
    ith_bench_clock_add(clock, ITH_VAE_NORMS, 0, ITH_BENCH_NO_UNIT);
    return ITH_OK;
}

static ith_status add_stages(void *user)
{
    decode_bench *b = user;
    ith_context *context = b->call.context;
    const ith_vae_extent extent = extent_of(b, b->problem.width);
    ith_vae_decoder *decoder = NULL;
    ith_vae_encoder *encoder = NULL;
    ith_status status = b->half == ITH_VAE_DECODER ? ith_vae_decoder_create(context, b->vae, &extent, &decoder)
                                                   : ith_vae_encoder_create(context, b->vae, &extent, &encoder);
    if (!status)
        status = add_layers(b, decoder ? &decoder->work : &encoder->work);
    ith_vae_decoder_free(&decoder);
    ith_vae_encoder_free(&encoder);
    return status;
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

static ith_status take_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    (void)user, (void)index, (void)frame, (void)height, (void)width;
    return ITH_OK;
}

static ith_status give_rows(void *user, int64_t frame, int64_t row, int64_t count, float *rows)
{
    const decode_bench *b = user;
    const size_t numbers_of_row = (size_t)b->problem.width * 3;
    (void)frame, (void)row;
    for (int64_t i = 0; i < count; i++)
        memcpy(rows + (size_t)i * numbers_of_row, b->row, numbers_of_row * sizeof *rows);
    return ITH_OK;
}

/* Decodes or encodes the video. The autoencoder's own progress is shown, so the span is not needed. */
static ith_status run(void *user, const ith_span *span)
{
    decode_bench *b = user;
    ith_context *context = b->call.context;
    const ith_vae_extent extent = extent_of(b, b->problem.width);
    (void)span;
    if (b->half == ITH_VAE_DECODER)
        return ith_vae_decode(context, b->vae, b->latents, &extent, take_frame, NULL, NULL);
    return ith_vae_encode(context, b->vae, &extent, give_rows, b, b->latents, NULL);
}

static ith_status make(void *user)
{
    decode_bench *b = user;
    ith_context *context = b->call.context;
    const int64_t count = numbers(b, b->problem.width);
    ith_status status =
        ith_vae_make_random(context, &b->config, b->half, b->call.types.products, b->call.options.weights, &b->vae);
    if (status)
        return status;
    b->latents = ith_alloc(context, count, sizeof *b->latents, "a benchmark's latents");
    if (!b->latents)
        return ITH_ERR_MEMORY;
    b->row = b->latents + latent_numbers(b, b->problem.width);
    return ith_noise_make(context, 0, 0, count, b->latents);
}

static void destroy(void *user)
{
    decode_bench *b = user;
    ith_vae_free(b->call.context, &b->vae);
    ith_free(b->call.context, b->latents);
}

static ith_status measure(ith_context *context, ith_vae_half half, const ith_decode_problem *problem,
                          const ith_bench_options *options, ith_bench_report *report)
{
    const ith_bench_kind kind = {.whole = half == ITH_VAE_DECODER ? "decode" : "encode",
                                 .check_memory = check_memory,
                                 .make = make,
                                 .add_stages = add_stages,
                                 .run = run,
                                 .destroy = destroy};
    decode_bench b = {.half = half};
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = read_problem(context, problem, &b.problem);
    if (status)
        return status;
    ith_vae_config_published(b.problem.vae == 22, &b.config);
    b.config.decoder_base_dim = b.config.encoder_base_dim = b.problem.base_dim;
    b.config.res_blocks = b.problem.res_blocks;
    b.latent_frames = (b.problem.frames - 1) / b.config.stride_time + 1;
    return ith_bench_call_perform(&b.call, context, options, report, &kind, &b);
}

ith_status ith_bench_decode(ith_context *context, const ith_decode_problem *problem, const ith_bench_options *options,
                            ith_bench_report *report)
{
    return measure(context, ITH_VAE_DECODER, problem, options, report);
}

ith_status ith_bench_encode(ith_context *context, const ith_decode_problem *problem, const ith_bench_options *options,
                            ith_bench_report *report)
{
    return measure(context, ITH_VAE_ENCODER, problem, options, report);
}
