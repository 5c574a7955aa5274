/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding: latents to frames.
 *
 *   z * std + mean -> post_quant_conv -> conv_in -> residual, attention, residual
 *     -> level 0 .. last: residual blocks, doubling -> norm, silu, conv_out -> clamp to [-1, 1]
 *
 * The reference decodes in chunks of one latent frame, which become 1, 2 and 4 frames on the way. As every convolution
 * over time looks back only, this is the same as letting each frame pass through all layers by itself: where a level
 * doubles the frames, both go through the levels after it, one after the other. The first latent frame is not doubled,
 * and the convolutions that double do not see it: to them the second frame is the first. */
#include "vae_layers.h"

#include "../../base/size.h"
#include "../../base/trace.h"

#include <ithaca/wan.h>

#include <omp.h>

#define LINE_FLOATS 4096
#define MOST_LATENT_SIDE 16384

typedef struct level_layer {
    const ith_vae_level *weights;
    int64_t height, width;
    ith_vae_residual_layer *residuals;
    ith_conv *resample;
    ith_conv_shape resample_shape;
    ith_vae_causal time;
    float *doubled; /* [height, width, 2 out]: both frames that time made of one */
} level_layer;

typedef struct decoder {
    const ith_vae *vae;
    ith_vae_work work;
    int64_t pixels; /* of a latent frame */
    ith_linear *post_quant;
    ith_vae_causal in, out;
    ith_vae_residual_layer before, after;
    ith_vae_attention_layer attention;
    level_layer levels[ITH_VAE_MOST_LEVELS];
    float *frame;     /* [height, width, 3] */
    bool first;       /* latent frame */
    int64_t finished; /* frames */
    ith_vae_frame_fn on_frame;
    void *user;
} decoder;

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

typedef struct buffer_sizes {
    int64_t main_floats, side_floats, temp_bytes, line_floats;
} buffer_sizes;

static buffer_sizes size_buffers(const ith_vae_config *config, ith_operand_types types, int64_t height, int64_t width)
{
    int64_t pixels = height * width, middle = ith_vae_level_in(config, 0);
    buffer_sizes sizes = {.line_floats = LINE_FLOATS};
    sizes.temp_bytes = ith_max64(ith_vae_attention_temp_bytes(pixels, middle), 2 * pixels * config->z_dim * 4);
    for (int64_t i = 0; i < config->levels; i++, pixels *= 4) {
        int64_t in = ith_vae_level_in(config, i), out = ith_vae_level_out(config, i);
        sizes.main_floats = ith_max64(sizes.main_floats, pixels * in);
        if (in != out)
            sizes.side_floats = ith_max64(sizes.side_floats, pixels * out);
        sizes.temp_bytes = ith_max64(sizes.temp_bytes, pixels * out * 4);
        if (i < config->levels - 1)
            sizes.temp_bytes = ith_max64(sizes.temp_bytes, 4 * pixels * out * ith_dtype_bytes(types.multiplied));
        sizes.line_floats = ith_max64(sizes.line_floats, ith_max64(in, out));
    }
    return sizes;
}

/* What the layers counted so far will hold, and the most scratch memory that one of them needs. */
typedef struct tally {
    ith_context *context;
    ith_status status;
    int64_t bytes, scratch_bytes;
} tally;

static void count_convs(tally *t, int64_t count, const ith_conv_shape *shape)
{
    int64_t scratch = 0;
    t->bytes += count * ith_conv_bytes(shape);
    if (!t->status)
        t->status = ith_conv_predict_scratch(t->context, shape, &scratch);
    t->scratch_bytes = ith_max64(t->scratch_bytes, scratch);
}

static void count_causals(tally *t, int64_t count, ith_conv_shape shape, int64_t in, int64_t out, int64_t kernel)
{
    shape.in = in, shape.out = out, shape.kernel = kernel, shape.frames = ITH_VAE_HISTORY;
    count_convs(t, count, &shape);
    t->bytes += count * shape.frames * ith_conv_frame_bytes(&shape);
}

static void count_level(tally *t, const ith_vae_config *config, int64_t index, ith_conv_shape shape)
{
    int64_t in = ith_vae_level_in(config, index), out = ith_vae_level_out(config, index);
    int64_t pixels = shape.height * shape.width;
    count_causals(t, 1, shape, in, out, 3);
    count_causals(t, 2 * config->res_blocks + 1, shape, out, out, 3);
    if (in != out)
        t->bytes += ith_linear_bytes(in, out, shape.types);
    if (index == config->levels - 1) {
        count_causals(t, 1, shape, out, 3, 3);
        t->bytes += pixels * 3 * 4;
        return;
    }
    if (config->temporal_up[index]) {
        count_causals(t, 1, shape, out, 2 * out, 1);
        t->bytes += pixels * 2 * out * 4;
    }
    shape.in = out, shape.out = out / 2, shape.kernel = 3, shape.frames = 1;
    shape.height *= 2, shape.width *= 2;
    count_convs(t, 1, &shape);
}

ith_status ith_vae_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                int64_t height, int64_t width, int64_t *bytes)
{
    ith_conv_shape shape = {.height = height, .width = width, .types = types};
    int64_t middle = ith_vae_level_in(config, 0);
    buffer_sizes sizes = size_buffers(config, types, height, width);
    tally t = {.context = context};
    t.bytes = (sizes.main_floats + sizes.side_floats + omp_get_max_threads() * sizes.line_floats) * 4;
    t.bytes += sizes.temp_bytes + ith_linear_bytes(config->z_dim, config->z_dim, types);
    t.bytes += ith_linear_bytes(middle, 3 * middle, types) + ith_linear_bytes(middle, middle, types);
    count_causals(&t, 1, shape, config->z_dim, middle, 3);
    count_causals(&t, 4, shape, middle, middle, 3);
    for (int64_t i = 0; i < config->levels; i++) {
        count_level(&t, config, i, shape);
        shape.height *= 2, shape.width *= 2;
    }
    *bytes = t.bytes + t.scratch_bytes;
    return t.status;
}

/* ---- Making and freeing ---------------------------------------------------------------------------------------- */

static ith_status create_level(decoder *d, int64_t index, int64_t height, int64_t width)
{
    level_layer *level = &d->levels[index];
    const ith_vae_level *weights = &d->vae->levels[index];
    ith_vae_work *work = &d->work;
    level->weights = weights, level->height = height, level->width = width;
    level->residuals =
        ith_alloc_zero(work->context, d->vae->config.res_blocks + 1, sizeof *level->residuals, "a decoder level");
    if (!level->residuals)
        return ITH_ERR_MEMORY;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i <= d->vae->config.res_blocks && !status; i++)
        status = ith_vae_residual_create(work, &weights->residuals[i], height, width, &level->residuals[i]);
    level->resample_shape = ith_vae_conv_shape(work, &weights->resample, 2 * height, 2 * width, false);
    if (!status && weights->resample.weight)
        status = ith_vae_conv_create(work, &weights->resample, 2 * height, 2 * width, false, &level->resample);
    if (status || !weights->time.weight)
        return status;
    status = ith_vae_causal_create(work, &weights->time, height, width, false, &level->time);
    if (status)
        return status;
    level->doubled = ith_alloc(work->context, height * width * weights->time.out, sizeof(float), "doubled frames");
    return level->doubled ? ITH_OK : ITH_ERR_MEMORY;
}

static ith_status create_layers(decoder *d, int64_t height, int64_t width)
{
    const ith_vae *vae = d->vae;
    ith_vae_work *work = &d->work;
    ith_status status = ith_vae_linear_create(work, &vae->post_quant, &d->post_quant);
    if (!status)
        status = ith_vae_causal_create(work, &vae->in, height, width, false, &d->in);
    if (!status)
        status = ith_vae_residual_create(work, &vae->before, height, width, &d->before);
    if (!status)
        status = ith_vae_attention_create(work, vae, d->pixels, &d->attention);
    if (!status)
        status = ith_vae_residual_create(work, &vae->after, height, width, &d->after);
    int64_t scale = 1;
    for (int64_t i = 0; i < vae->config.levels && !status; i++, scale *= 2)
        status = create_level(d, i, height * scale, width * scale);
    scale = vae->config.stride_space;
    return status ? status : ith_vae_causal_create(work, &vae->out, height * scale, width * scale, false, &d->out);
}

static ith_status create_buffers(decoder *d, int64_t height, int64_t width)
{
    ith_vae_work *work = &d->work;
    ith_context *context = work->context;
    buffer_sizes sizes = size_buffers(&d->vae->config, work->types, height, width);
    const level_layer *last = &d->levels[d->vae->config.levels - 1];
    work->line_floats = sizes.line_floats;
    work->main = ith_alloc(context, sizes.main_floats, sizeof(float), "a frame being decoded");
    work->side = ith_alloc(context, sizes.side_floats, sizeof(float), "a frame being decoded");
    work->temp = ith_alloc(context, sizes.temp_bytes, 1, "a layer's work space");
    work->lines = ith_alloc(context, omp_get_max_threads(), sizes.line_floats * 4, "lines of a frame");
    work->conv_scratch = ith_alloc(context, work->conv_scratch_bytes, 1, "a convolution's work space");
    d->frame = ith_alloc(context, last->height * last->width, 3 * sizeof(float), "a decoded frame");
    return work->main && work->side && work->temp && work->lines && work->conv_scratch && d->frame ? ITH_OK
                                                                                                   : ITH_ERR_MEMORY;
}

static void free_level(decoder *d, level_layer *level)
{
    for (int64_t i = 0; level->residuals && i <= d->vae->config.res_blocks; i++)
        ith_vae_residual_free(&d->work, &level->residuals[i]);
    ith_free(d->work.context, level->residuals);
    ith_conv_destroy(d->work.context, &level->resample);
    ith_vae_causal_free(&d->work, &level->time);
    ith_free(d->work.context, level->doubled);
}

static void free_decoder(decoder *d)
{
    ith_vae_work *work = &d->work;
    ith_linear_destroy(work->context, &d->post_quant);
    ith_vae_causal_free(work, &d->in);
    ith_vae_causal_free(work, &d->out);
    ith_vae_residual_free(work, &d->before);
    ith_vae_residual_free(work, &d->after);
    ith_vae_attention_free(work, &d->attention);
    for (int i = 0; i < ITH_VAE_MOST_LEVELS; i++)
        free_level(d, &d->levels[i]);
    ith_free(work->context, work->main);
    ith_free(work->context, work->side);
    ith_free(work->context, work->temp);
    ith_free(work->context, work->lines);
    ith_free(work->context, work->conv_scratch);
    ith_free(work->context, d->frame);
}

/* ---- Decoding -------------------------------------------------------------------------------------------------- */

static ith_status finish_frame(decoder *d, const level_layer *last)
{
    int64_t pixels = last->height * last->width;
    ith_vae_norm_silu(&d->work, ith_vae_causal_next(&d->out), d->work.x, d->vae->norm_out, pixels, last->weights->out);
    ith_status status = ith_vae_causal_run(&d->work, &d->out, d->frame);
    if (status)
        return status;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < pixels * 3; i++) { /* NaN stays NaN */
        float v = d->frame[i];
        d->frame[i] = v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v;
    }
    d->work.shown_most += ITH_PROGRESS_UNIT;
    return d->on_frame(d->user, d->finished++, d->frame, last->height, last->width);
}

static ith_status run_level(decoder *d, int64_t index);

/* x, whose pixels lie stride numbers apart, at twice the height and width, through the levels that follow. */
static ith_status enlarge(decoder *d, int64_t index, const float *x, int64_t stride)
{
    level_layer *level = &d->levels[index];
    ith_vae_work *work = &d->work;
    ith_vae_upsample(work, work->temp, x, stride, level->height, level->width, level->weights->out);
    work->x = work->main;
    ith_status status = ith_vae_conv_run(work, level->resample, &level->resample_shape, work->temp, 0, work->x);
    return status ? status : run_level(d, index + 1);
}

/* As deep as there are levels. */
static ith_status run_level(decoder *d, int64_t index)
{
    level_layer *level = &d->levels[index];
    ith_vae_work *work = &d->work;
    int64_t out = level->weights->out;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < d->vae->config.res_blocks + 1 && !status; i++)
        status = ith_vae_residual_run(work, &level->residuals[i]);
    if (status)
        return status;
    if (!level->resample)
        return finish_frame(d, level);
    if (!level->doubled || d->first)
        return enlarge(d, index, work->x, out);
    ith_vae_operand(work, ith_vae_causal_next(&level->time), work->x, level->height * level->width * out);
    status = ith_vae_causal_run(work, &level->time, level->doubled);
    for (int half = 0; half < 2 && !status; half++)
        status = enlarge(d, index, level->doubled + half * out, 2 * out);
    return status;
}

/* z * std + mean, from [channels][frames][pixels] to [pixels][channels]. */
static void unnormalise(const decoder *d, const float *latents, int64_t frames, int64_t frame, float *z)
{
    const ith_vae_config *config = &d->vae->config;
    for (int64_t c = 0; c < config->z_dim; c++)
        for (int64_t i = 0; i < d->pixels; i++)
            z[i * config->z_dim + c] = latents[(c * frames + frame) * d->pixels + i] * config->std[c] + config->mean[c];
}

static ith_status decode_latent(decoder *d, const float *latents, int64_t frames, int64_t frame)
{
    ith_vae_work *work = &d->work;
    int64_t channels = d->vae->config.z_dim, count = d->pixels * channels;
    float *z = (float *)(void *)work->temp, *mixed = z + count;
    unnormalise(d, latents, frames, frame, z);
    ith_status status = ith_linear_run(work->context, d->post_quant, d->pixels, z, channels, mixed, channels);
    if (status)
        return status;
    ith_vae_operand(work, ith_vae_causal_next(&d->in), mixed, count);
    work->x = work->main;
    d->first = frame == 0;
    status = ith_vae_causal_run(work, &d->in, work->x);
    if (!status)
        status = ith_vae_residual_run(work, &d->before);
    if (!status)
        status = ith_vae_attention_run(work, &d->attention);
    if (!status)
        status = ith_vae_residual_run(work, &d->after);
    return status ? status : run_level(d, 0);
}

static double residual_operations(const ith_vae_residual_layer *layer)
{
    return ith_conv_operations(&layer->conv1.shape) + ith_conv_operations(&layer->conv2.shape);
}

/* Of all convolutions that one latent frame goes through. */
static double latent_operations(const decoder *d, bool first)
{
    double sum = ith_conv_operations(&d->in.shape) + residual_operations(&d->before) + residual_operations(&d->after);
    double pictures = 1;
    for (int64_t i = 0; i < d->vae->config.levels; i++) {
        const level_layer *level = &d->levels[i];
        for (int64_t j = 0; j <= d->vae->config.res_blocks; j++)
            sum += pictures * residual_operations(&level->residuals[j]);
        if (level->doubled && !first) {
            sum += pictures * ith_conv_operations(&level->time.shape);
            pictures *= 2;
        }
        if (level->resample)
            sum += pictures * ith_conv_operations(&level->resample_shape);
    }
    return sum + pictures * ith_conv_operations(&d->out.shape);
}

static void begin_latent(decoder *d, int64_t frame, int64_t frames)
{
    int64_t stride = d->vae->config.stride_time, begin = frame ? (frame - 1) * stride + 1 : 0;
    d->work.shown = (ith_span){.stage = ITH_STAGE_DECODE,
                               .begin = begin * ITH_PROGRESS_UNIT,
                               .end = (frame * stride + 1) * ITH_PROGRESS_UNIT,
                               .total = ((frames - 1) * stride + 1) * ITH_PROGRESS_UNIT};
    d->work.shown_most = d->work.shown.begin + ITH_PROGRESS_UNIT - 1;
    d->work.operations = latent_operations(d, frame == 0);
    d->work.operations_done = 0;
}

ith_status ith_vae_decode(ith_context *context, const ith_vae *vae, const float *latents, int64_t frames,
                          int64_t height, int64_t width, ith_vae_frame_fn on_frame, void *user)
{
    if (frames < 1 || height < 1 || width < 1 || height > MOST_LATENT_SIDE || width > MOST_LATENT_SIDE)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "latents of %lld frames of %lld x %lld cannot be decoded; sides must be from 1 to %d",
                        (long long)frames, (long long)height, (long long)width, MOST_LATENT_SIDE);
    decoder d = {.vae = vae, .pixels = height * width, .on_frame = on_frame, .user = user};
    d.work.context = context, d.work.types = vae->types;
    d.work.rowops = ith_rowops_choose(ith_context_cpu(context));
    d.work.weight_bytes = vae->weight_bytes;
    ith_observer_show(context, ITH_STAGE_LOAD, 0, vae->weight_bytes);
    ith_status status = create_layers(&d, height, width);
    if (!status)
        status = create_buffers(&d, height, width);
    for (int64_t frame = 0; frame < frames && !status; frame++) {
        begin_latent(&d, frame, frames);
        double traced = ith_trace_begin(context);
        status = decode_latent(&d, latents, frames, frame);
        ith_trace_end(context, traced, "decode", "compute");
    }
    free_decoder(&d);
    return status;
}
