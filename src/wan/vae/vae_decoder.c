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

/* Applies the last norm, silu, conv_out and the clamp, and passes the frame to the caller. */
static ith_status finish_frame(decoding *call)
{
    ith_vae_decoder *d = call->decoder;
    const ith_conv_shape *shape = &d->out->conv.shape;
    ith_vae_conv_take(&d->work, d->out, d->work.x);
    ith_status status = ith_vae_conv_apply(&d->work, d->out, d->frame);
    if (status)
        return status;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < shape->height * shape->width * 3; i++) { /* a NaN stays a NaN */
        float v = d->frame[i];
        d->frame[i] = v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v;
    }
    d->work.shown_most += ITH_PROGRESS_UNIT;
    return call->on_frame(call->user, call->finished++, d->frame, shape->height, shape->width);
}

static ith_status decode_level(decoding *call, int64_t index);

/* Doubles the height and width of x, and computes the later levels of it. The pixels of x are `stride` numbers apart.
 */
static ith_status enlarge(decoding *call, int64_t index, const float *x, int64_t stride)
{
    ith_vae_work *work = &call->decoder->work;
    ith_vae_conv *resample = call->decoder->levels[index].resample;
    ith_vae_conv_take_doubled(work, resample, x, stride);
    work->x = work->main;
    ith_status status = ith_vae_conv_apply(work, resample, work->x);
    return status ? status : decode_level(call, index + 1);
}

/* Computes level `index` (the layers at one picture size) for the current frame, and then all later levels by
 * recursion. */
static ith_status decode_level(decoding *call, int64_t index)
{
    ith_vae_level_layers *level = &call->decoder->levels[index];
    ith_vae_work *work = &call->decoder->work;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i <= call->decoder->vae->config.res_blocks && !status; i++)
        status = ith_vae_residual_apply(work, &level->residuals[2 * i]);
    if (status)
        return status;
    if (!level->resample)
        return finish_frame(call);
    if (!level->time || call->first)
        return enlarge(call, index, work->x, level->out);
    ith_vae_conv_take(work, level->time, work->x);
    status = ith_vae_conv_apply(work, level->time, level->doubled);
    for (int half = 0; half < 2 && !status; half++)
        status = enlarge(call, index, level->doubled + half * level->out, 2 * level->out);
    return status;
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
    ith_vae_conv_take(work, d->in, mixed);
    work->x = work->main;
    call->first = frame == 0;
    status = ith_vae_conv_apply(work, d->in, work->x);
    if (!status)
        status = ith_vae_residual_apply(work, d->before);
    if (!status)
        status = ith_vae_attention_apply(work, &d->attention);
    if (!status)
        status = ith_vae_residual_apply(work, d->after);
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

/* Predicts the peak memory: makes an autoencoder and a decoder as decoding does, but loads no weights and does not
 * allocate the decoder's buffers. */
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
