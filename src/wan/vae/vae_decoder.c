/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding: latents to frames.
 *
 *   z * std + mean -> post_quant_conv -> conv_in -> residual, attention, residual
 *     -> level 0 .. last: residual blocks, doubling -> norm, silu, conv_out -> clamp to [-1, 1]
 *
 * The reference decodes one latent frame at a time, which becomes 1, 2 and 4 frames on the way. Every convolution over
 * time looks back only, so each frame may pass through all layers by itself, with the same result. Where a level
 * doubles the frames, its first frame passes through all later levels before its second frame does. The first latent
 * frame is not doubled in time. The convolutions that double frames do not read it: the first frame that they read
 * comes from the second latent frame. */
#include "vae_decoder.h"

#include "../../base/size.h"
#include "../../base/trace.h"

#include <ithaca/wan.h>

#define MOST_LATENT_SIDE 16384

/* The state of one call of ith_vae_decode. */
typedef struct decoding {
    ith_vae_decoder *decoder;
    bool first;       /* whether the first latent frame is being decoded */
    int64_t finished; /* number of frames that the caller has received */
    ith_vae_frame_fn on_frame;
    void *user;
} decoding;

/* Computes z * std + mean for one latent frame, from [channels][frames][pixels] to [pixels][channels]. */
static void unnormalise(const ith_vae_decoder *d, const float *latents, int64_t frames, int64_t frame, float *z)
{
    const ith_vae_config *config = &d->vae->config;
    for (int64_t c = 0; c < config->z_dim; c++)
        for (int64_t i = 0; i < d->pixels; i++)
            z[i * config->z_dim + c] = latents[(c * frames + frame) * d->pixels + i] * config->std[c] + config->mean[c];
}

/* Keeps pixels of a finished frame, clamped to [-1, 1]. A NaN stays a NaN. */
static void finish_pixels(void *user, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const ith_vae_decoder *d = user;
    float *to = d->frame + (row * d->out->conv.shape.width + first) * 3;
    for (int64_t i = 0; i < count * 3; i++)
        to[i] = pixels[i] < -1.0f ? -1.0f : pixels[i] > 1.0f ? 1.0f : pixels[i];
}

/* Applies the last norm, silu, conv_out and the clamp, and passes the frame to the caller. */
static ith_status finish_frame(decoding *call)
{
    ith_vae_decoder *d = call->decoder;
    const ith_conv_shape *shape = &d->out->conv.shape;
    const ith_conv_output output = {finish_pixels, d};
    ith_status status = ith_vae_conv_apply(&d->work, d->out, d->work.x, &output);
    if (status)
        return status;
    d->work.shown_most += ITH_PROGRESS_UNIT;
    return call->on_frame(call->user, call->finished++, d->frame, shape->height, shape->width);
}

static ith_status decode_level(decoding *call, int64_t index);

/* The output of `resample` of level `index`: the frame with which the next level begins. */
static ith_vae_frame next_frame(const decoding *call, int64_t index)
{
    const ith_vae_level_layers *next = &call->decoder->levels[index + 1];
    return (ith_vae_frame){next->begin, next->width, next->in};
}

/* Doubles the height and width of a frame x of level `index`, in numbers of type `type`. The next level's frame may
 * begin half of its size before x: a row of the result overwrites only rows of x that have been read. */
static ith_status enlarge(decoding *call, int64_t index, const void *x, ith_dtype type)
{
    ith_vae_work *work = &call->decoder->work;
    const ith_vae_level_layers *level = &call->decoder->levels[index];
    const int64_t strip = ith_max64(level->resample->conv.shape.strip / 2, 1);
    const int64_t bytes = level->out * ith_dtype_bytes(type);
    ith_vae_frame frame = next_frame(call, index);
    const ith_conv_output output = {ith_vae_frame_store, &frame};
    ith_status status = ITH_OK;
    ith_conv_begin(&level->resample->conv);
    for (int64_t begin = 0; begin < level->height && !status; begin += strip) {
        int64_t end = ith_min64(begin + strip, level->height);
#pragma omp parallel for schedule(static)
        for (int64_t i = begin * level->width; i < end * level->width; i++)
            ith_vae_conv_put_doubled(work, level->resample, i / level->width, i % level->width,
                                     (const char *)x + i * bytes, type);
        status = ith_vae_conv_advance(work, level->resample, 2 * end, &output);
    }
    return status;
}

/* The two frames that `time` makes of one: the first becomes input of `resample`, the second is kept. */
typedef struct time_halves {
    const ith_vae_work *work;
    const ith_vae_level_layers *level;
} time_halves;

static void take_halves(void *user, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const time_halves *halves = user;
    const ith_vae_level_layers *level = halves->level;
    const ith_vae_conv *conv = level->resample;
    const int64_t bytes = level->out * ith_dtype_bytes(ith_conv_row_type(&conv->conv));
    for (int64_t i = 0; i < count; i++, pixels += 2 * level->out) {
        char *later = level->later + (row * level->width + first + i) * bytes;
        ith_vae_conv_put_doubled(halves->work, conv, row, first + i, pixels, ITH_F32);
        ith_vae_conv_convert(halves->work, conv, later, pixels + level->out, ITH_F32, level->out);
    }
}

/* Doubles the frames as well: enlarges the first of the two frames and keeps the second in level->later. */
static ith_status enlarge_first(decoding *call, int64_t index, const float *x)
{
    ith_vae_work *work = &call->decoder->work;
    const ith_vae_level_layers *level = &call->decoder->levels[index];
    ith_vae_conv *time = level->time;
    time_halves halves = {work, level};
    ith_vae_frame frame = next_frame(call, index);
    const ith_conv_output split = {take_halves, &halves}, output = {ith_vae_frame_store, &frame};
    ith_status status = ITH_OK;
    ith_conv_begin(&time->conv);
    ith_conv_begin(&level->resample->conv);
    for (int64_t begin = 0; begin < level->height && !status; begin += time->conv.shape.strip) {
        int64_t end = ith_min64(begin + time->conv.shape.strip, level->height);
        ith_vae_conv_put_rows(work, time, x, begin, end);
        status = ith_vae_conv_advance(work, time, end, &split);
        if (!status)
            status = ith_vae_conv_advance(work, level->resample, 2 * end, &output);
    }
    return status;
}

/* Computes level `index` (the layers at one picture size) for the current frame, and then all later levels by
 * recursion. */
static ith_status decode_level(decoding *call, int64_t index)
{
    ith_vae_level_layers *level = &call->decoder->levels[index];
    ith_vae_work *work = &call->decoder->work;
    const bool doubles = level->time && !call->first;
    ith_status status = ITH_OK;
    work->x = level->begin;
    for (int64_t i = 0; i <= call->decoder->vae->config.res_blocks && !status; i++)
        status = ith_vae_residual_apply(work, &level->residuals[2 * i], level->end);
    if (status)
        return status;
    if (!level->resample)
        return finish_frame(call);
    status = doubles ? enlarge_first(call, index, work->x) : enlarge(call, index, work->x, ITH_F32);
    if (!status)
        status = decode_level(call, index + 1);
    if (!status && doubles)
        status = enlarge(call, index, level->later, ith_conv_row_type(&level->resample->conv));
    return !status && doubles ? decode_level(call, index + 1) : status;
}

/* Decodes one latent frame: first the layers at the size of the latents, then the levels that enlarge the picture. */
static ith_status decode_latent(decoding *call, const float *latents, int64_t frames, int64_t frame)
{
    ith_vae_decoder *d = call->decoder;
    ith_vae_work *work = &d->work;
    float *z = (float *)(void *)work->temp, *mixed = z + d->pixels * d->vae->config.z_dim;
    unnormalise(d, latents, frames, frame, z);
    ith_status status = ith_vae_linear_apply(work, d->post_quant, z, mixed);
    if (status)
        return status;
    work->x = d->levels[0].begin;
    call->first = frame == 0;
    ith_vae_frame first = {work->x, d->levels[0].width, d->levels[0].in};
    const ith_conv_output output = {ith_vae_frame_store, &first};
    status = ith_vae_conv_apply(work, d->in, mixed, &output);
    if (!status)
        status = ith_vae_residual_apply(work, d->before, NULL);
    if (!status)
        status = ith_vae_attention_apply(work, &d->attention);
    if (!status)
        status = ith_vae_residual_apply(work, d->after, NULL);
    return status ? status : decode_level(call, 0);
}

/* Prepares the display of progress for one latent frame. Progress is measured in operations of convolutions. */
static void begin_latent(ith_vae_decoder *d, int64_t frame, int64_t frames)
{
    int64_t stride = d->vae->config.stride_time, begin = frame ? (frame - 1) * stride + 1 : 0;
    ith_vae_work *work = &d->work;
    work->shown = (ith_span){.stage = ITH_STAGE_DECODE,
                             .begin = begin * ITH_PROGRESS_UNIT,
                             .end = (frame * stride + 1) * ITH_PROGRESS_UNIT,
                             .total = ((frames - 1) * stride + 1) * ITH_PROGRESS_UNIT};
    work->shown_most = work->shown.begin + ITH_PROGRESS_UNIT - 1;
    work->operations = work->operations_done = 0;
    for (int64_t i = 0; i < work->conv_count; i++) {
        const ith_vae_conv *c = &work->convs[i];
        work->operations += (double)(frame ? c->times : c->first_times) * ith_conv_operations(&c->conv.shape);
    }
}

static ith_status check_size(ith_context *context, int64_t frames, int64_t height, int64_t width)
{
    if (frames < 1 || height < 1 || width < 1 || height > MOST_LATENT_SIDE || width > MOST_LATENT_SIDE)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "latents of %lld frames of %lld x %lld cannot be decoded; sides must be from 1 to %d",
                        (long long)frames, (long long)height, (long long)width, MOST_LATENT_SIDE);
    return ITH_OK;
}

ith_status ith_vae_decode(ith_context *context, const ith_vae *vae, const float *latents, int64_t frames,
                          int64_t height, int64_t width, ith_vae_frame_fn on_frame, void *user)
{
    decoding call = {.on_frame = on_frame, .user = user};
    ith_status status = check_size(context, frames, height, width);
    if (!status)
        status = ith_vae_decoder_create(context, vae, height, width, &call.decoder);
    if (!status)
        status = ith_vae_decoder_open(call.decoder);
    for (int64_t frame = 0; frame < frames && !status; frame++) {
        begin_latent(call.decoder, frame, frames);
        double traced = ith_trace_begin(context);
        status = decode_latent(&call, latents, frames, frame);
        ith_trace_end(context, traced, "decode", "compute");
    }
    ith_vae_decoder_free(&call.decoder);
    return status;
}

/* Predicts the peak memory: makes an autoencoder and a decoder as decoding does, but reads no weights and allocates no
 * buffers. */
ith_status ith_vae_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                int64_t height, int64_t width, int64_t *bytes)
{
    ith_vae *vae = NULL;
    ith_vae_decoder *decoder = NULL;
    int64_t decode = 0;
    ith_status status = ith_vae_create(context, config, types, &vae);
    if (!status)
        status = ith_vae_decoder_create(context, vae, height, width, &decoder);
    if (!status)
        status = ith_vae_decoder_bytes(decoder, &decode);
    if (!status)
        *bytes = ith_vae_bytes(vae) + decode;
    ith_vae_decoder_free(&decoder);
    ith_vae_free(context, &vae);
    return status;
}
