/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding on a device (vae_device.h): enqueues the layers of one latent frame after the other. While the device
 * computes a latent frame, the caller takes the frames of the latent frame before. */
#include "vae_device.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/observer.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "vae_memory.h"

#include <math.h>

/* Numbers between two layers that are not added up yet: s = x + y + bias + dealt (device_conv.h). */
typedef struct flow {
    const float *x;
    const void *y;
    const float *bias;
    ith_device_dealt dealt;
} flow;

/* ---- Operations ------------------------------------------------------------------------------------------------ */

/* The place where the next frames of x are written, behind the history of the convolution. */
static void *input_of(const ith_vae_device *d, const ith_vae_device_conv *c)
{
    const int64_t pixels = ith_vae_device_history(c) * c->height * c->width;
    return c->input ? c->input + pixels * ith_vae_device_pixel_bytes(d, c->filter->in) : d->scratch;
}

/* Moves the last two frames of x to the place of the history. */
static ith_status keep_history(const ith_vae_device *d, const ith_vae_device_conv *c, int64_t frames, char *said)
{
    const int64_t bytes = c->height * c->width * ith_vae_device_pixel_bytes(d, c->filter->in);
    const int64_t together = frames > 1 ? 2 : 1; /* frames of one copy: source and target must not overlap */
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < 2 && !status; i += together)
        status = d->use->module->copy(d->stream, c->input + i * bytes, c->input + (frames + i) * bytes,
                                      together * bytes, said);
    return status;
}

/* Computes y = conv(x), of `frames` frames. */
static ith_status convolve(const ith_vae_device *d, const ith_vae_device_conv *c, int64_t frames)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_device_conv call = ith_vae_device_describe(d, c, frames);
    call.x = c->input ? c->input : d->scratch;
    call.w = c->w;
    call.y = d->y;
    ith_status status = d->ops->convolve(d->stream, d->convs, &call, d->conv_scratch, d->conv_scratch_bytes, said);
    if (!status && c->input)
        status = keep_history(d, c, frames, said);
    return ith_device_check(d->context, status, said);
}

static ith_status pass(const ith_vae_device *d, const ith_device_pixels *p)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    return ith_device_check(d->context, d->ops->pixels(d->stream, p, said), said);
}

/* A pass over the numbers of a flow. */
static ith_device_pixels pass_of(const ith_vae_device *d, const flow *f, int64_t frames, int64_t height, int64_t width,
                                 int64_t channels)
{
    return (ith_device_pixels){.frames = frames,
                               .height = height,
                               .width = width,
                               .channels = channels,
                               .type = d->type,
                               .x = f->x,
                               .y = f->y,
                               .pieces = 1,
                               .bias = f->bias,
                               .dealt = f->dealt};
}

/* The output of a convolution. */
static flow flow_from(const ith_vae_device *d, const ith_vae_device_conv *c)
{
    return (flow){.y = d->y, .bias = c->bias};
}

/* The same pass, whose result is also x of a convolution, normed with silu if the convolution has a norm. */
static void pass_to(const ith_vae_device *d, ith_device_pixels *p, const ith_vae_device_conv *c, bool silu)
{
    if (c->gamma)
        p->normed = input_of(d, c), p->gamma = c->gamma, p->silu = silu;
    else
        p->plain = input_of(d, c);
}

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* A residual block: f becomes shortcut(f) + conv2(silu(norm2(conv1(silu(norm1(f)))))). `begin` receives f, and `end`
 * shortcut(f) if there is a shortcut. */
static ith_status apply_residual(const ith_vae_device *d, const ith_vae_device_residual *r, int64_t frames,
                                 float *begin, float *end, flow *f)
{
    const ith_vae_device_conv *one = r->conv1, *two = r->conv2;
    ith_device_pixels p = pass_of(d, f, frames, one->height, one->width, one->filter->in);
    p.sum = begin;
    pass_to(d, &p, one, true);
    if (r->shortcut)
        pass_to(d, &p, r->shortcut, false);
    ith_status status = pass(d, &p);
    if (!status && r->shortcut) {
        const flow shortcut = flow_from(d, r->shortcut);
        status = convolve(d, r->shortcut, frames);
        p = pass_of(d, &shortcut, frames, one->height, one->width, one->out);
        p.sum = end;
        if (!status)
            status = pass(d, &p);
    }
    if (!status)
        status = convolve(d, one, frames);
    *f = flow_from(d, one);
    p = pass_of(d, f, frames, one->height, one->width, one->out);
    pass_to(d, &p, two, true);
    if (!status)
        status = pass(d, &p);
    if (!status)
        status = convolve(d, two, frames);
    *f = flow_from(d, two);
    f->x = r->shortcut ? end : begin;
    return status;
}

/* y [rows][out] = x [rows][in] w [out][in]^T + bias, where rows are contiguous and y is f32. */
static ith_status multiply(const ith_vae_device *d, ith_device_linear call)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    call.x_stride = call.in, call.y_stride = call.out, call.y_type = ITH_F32;
    return ith_device_check(d->context, d->use->module->layers->linear(d->stream, d->products, &call, said), said);
}

/* q, k = n w^T + bias, and vt = w_v n^T, for the normed pixels n. vt has no bias: it is a product of the weights of v
 * as rows with the pixels as weights. */
static ith_status make_qkv(const ith_vae_device *d, const char *n)
{
    const int64_t channels = d->qkv->filter->in, pixels = d->height * d->width;
    const int64_t part = channels * ith_vae_device_pixel_bytes(d, channels); /* bytes of the weights of q */
    const char *const w = d->qkv->w;
    const ith_device_linear q = {.rows = pixels,
                                 .in = channels,
                                 .out = channels,
                                 .type = d->type,
                                 .x = n,
                                 .w = w,
                                 .bias = d->qkv->bias,
                                 .y = d->q};
    const ith_device_linear vt = {
        .rows = channels, .in = channels, .out = pixels, .type = d->type, .x = w + 2 * part, .w = n, .y = d->vt};
    ith_device_linear k = q;
    k.w = w + part, k.bias = d->qkv->bias + channels, k.y = d->k;
    ith_status status = multiply(d, q);
    if (!status)
        status = multiply(d, k);
    return status ? status : multiply(d, vt);
}

/* o = softmax(q k^T / sqrt(channels)) v + bias, some rows at a time: v without its bias is vt^T, and the probabilities
 * of a row sum to 1. */
static ith_status attend(const ith_vae_device *d, const float *bias)
{
    const int64_t channels = d->qkv->filter->in, pixels = d->height * d->width;
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_status status = ITH_OK;
    for (int64_t first = 0; first < pixels && !status; first += d->logit_rows) {
        const int64_t rows = ith_min64(d->logit_rows, pixels - first);
        const ith_device_softmax softmax = {d->logits, rows, pixels, (float)(1 / sqrt((double)channels))};
        const ith_device_linear logits = {.rows = rows,
                                          .in = channels,
                                          .out = pixels,
                                          .type = ITH_F32,
                                          .x = d->q + first * channels,
                                          .w = d->k,
                                          .y = d->logits};
        const ith_device_linear output = {.rows = rows,
                                          .in = pixels,
                                          .out = channels,
                                          .type = ITH_F32,
                                          .x = d->logits,
                                          .w = d->vt,
                                          .bias = bias,
                                          .y = d->o + first * channels};
        status = multiply(d, logits);
        if (!status)
            status = ith_device_check(d->context, d->ops->softmax(d->stream, &softmax, said), said);
        if (!status)
            status = multiply(d, output);
    }
    return status;
}

/* The attention over the pixels of a latent frame, f += proj(attention(qkv(norm(f)))). x: receives f. */
static ith_status apply_attention(const ith_vae_device *d, float *x, flow *f)
{
    const int64_t channels = d->qkv->filter->in;
    ith_device_pixels p = pass_of(d, f, 1, d->height, d->width, channels);
    p.sum = x;
    pass_to(d, &p, d->qkv, false);
    ith_status status = pass(d, &p);
    if (!status)
        status = make_qkv(d, d->scratch);
    if (!status)
        status = attend(d, d->qkv->bias + 2 * channels);
    const flow attended = {.x = d->o};
    p = pass_of(d, &attended, 1, d->height, d->width, channels);
    pass_to(d, &p, d->proj, false);
    if (!status)
        status = pass(d, &p);
    if (!status)
        status = convolve(d, d->proj, 1);
    *f = flow_from(d, d->proj);
    f->x = x;
    return status;
}

/* The layers at the size of the latents, from z. */
static ith_status apply_middle(const ith_vae_device *d, flow *f)
{
    float *x = d->levels[0].begin;
    *f = (flow){.x = d->z};
    ith_device_pixels p = pass_of(d, f, 1, d->height, d->width, d->vae->config.z_dim);
    pass_to(d, &p, d->quant, false);
    ith_status status = pass(d, &p);
    if (!status)
        status = convolve(d, d->quant, 1);
    *f = flow_from(d, d->quant);
    p = pass_of(d, f, 1, d->height, d->width, d->vae->config.z_dim);
    pass_to(d, &p, d->in, false);
    if (!status)
        status = pass(d, &p);
    if (!status)
        status = convolve(d, d->in, 1);
    *f = flow_from(d, d->in);
    if (!status)
        status = apply_residual(d, &d->before, 1, x, x, f);
    if (!status)
        status = apply_attention(d, x, f);
    return status ? status : apply_residual(d, &d->after, 1, x, x, f);
}

/* Doubles height and width of a level's result f, and its frames unless this is the first latent frame. */
static ith_status enlarge(const ith_vae_device *d, const ith_vae_device_level *level, int64_t *frames, bool first,
                          flow *f)
{
    ith_status status = ITH_OK;
    ith_device_pixels p = pass_of(d, f, *frames, level->height, level->width, level->out);
    if (level->time && !first) {
        pass_to(d, &p, level->time, false);
        status = pass(d, &p);
        if (!status)
            status = convolve(d, level->time, *frames);
        *f = flow_from(d, level->time);
        *frames *= 2;
        p = pass_of(d, f, *frames, level->height, level->width, level->out);
        p.pieces = 2;
    }
    pass_to(d, &p, level->resample, false);
    p.doubled = true;
    if (!status)
        status = pass(d, &p);
    if (!status)
        status = convolve(d, level->resample, *frames);
    *f = flow_from(d, level->resample);
    if (level->repeats)
        f->dealt = (ith_device_dealt){.from = level->begin,
                                      .channels = level->in,
                                      .repeats = level->repeats,
                                      .skipped = first ? 1 : 0,
                                      .time = level->time != NULL};
    return status;
}

/* The residual blocks of a level, and its doubling. */
static ith_status apply_level(const ith_vae_device *d, const ith_vae_device_level *level, int64_t *frames, bool first,
                              flow *f)
{
    ith_status status = ith_context_check(d->context);
    for (int64_t i = 0; i <= d->vae->config.res_blocks && !status; i++)
        status = apply_residual(d, &level->residuals[i], *frames, i ? level->end : level->begin, level->end, f);
    return status || !level->resample ? status : enlarge(d, level, frames, first, f);
}

/* Enqueues the last norm, conv_out and the colours, and the copy of the frames to memory of the host. */
static ith_status finish(const ith_vae_device *d, int64_t frames, const flow *f, float *pinned)
{
    const ith_vae_device_conv *c = d->out;
    const int64_t patch = d->vae->config.patch;
    char said[ITH_DEVICE_SENTENCE] = "";
    ith_device_pixels p = pass_of(d, f, frames, c->height, c->width, c->filter->in);
    pass_to(d, &p, c, true);
    ith_status status = pass(d, &p);
    if (!status)
        status = convolve(d, c, frames);
    if (status)
        return status;
    const ith_device_colours colours = {.frames = frames,
                                        .height = c->height,
                                        .width = c->width,
                                        .channels = c->out,
                                        .patch = patch,
                                        .type = d->type,
                                        .y = d->y,
                                        .bias = c->bias,
                                        .rgb = d->rgb};
    status = d->ops->colours(d->stream, &colours, said);
    if (!status)
        status = d->use->module->copy(d->stream, pinned, d->rgb,
                                      frames * c->height * c->width * patch * patch * 3 * (int64_t)sizeof(float), said);
    return ith_device_check(d->context, status, said);
}

/* ---- Latent frames --------------------------------------------------------------------------------------------- */

/* The state of one call of ith_vae_device_decode. */
typedef struct decoding {
    ith_vae_device *d;
    const float *latents;
    int64_t frames;
    ith_vae_span rows; /* of the latents, whose pixels the caller wants */
    int64_t finished;  /* number of frames that the caller has received */
    ith_vae_frame_fn on_frame;
    void *user;
} decoding;

/* Enqueues all layers for a latent frame. The device has finished the latent frame before. */
static ith_status enqueue(const decoding *call, int64_t frame)
{
    const ith_vae_device *d = call->d;
    const int64_t bytes = d->height * d->width * d->vae->config.z_dim * (int64_t)sizeof(float);
    char said[ITH_DEVICE_SENTENCE] = "";
    int64_t frames = 1;
    flow f;
    ith_vae_unnormalise(&d->vae->config, call->latents, call->frames, frame, d->height * d->width, d->pinned_z);
    ith_status status =
        ith_device_check(d->context, d->use->module->copy(d->stream, d->z, d->pinned_z, bytes, said), said);
    if (!status)
        status = apply_middle(d, &f);
    for (int64_t i = 0; i < d->vae->config.levels && !status; i++)
        status = apply_level(d, &d->levels[i], &frames, frame == 0, &f);
    return status ? status : finish(d, frames, &f, d->pinned_rgb[frame % 2]);
}

/* Passes the frames that a latent frame has become to the caller. */
static ith_status hand_over(decoding *call, int64_t frame)
{
    const ith_vae_device *d = call->d;
    const int64_t scale = d->vae->config.stride_space, width = d->width * scale;
    const int64_t frames = frame ? d->vae->config.stride_time : 1;
    const float *pixels = d->pinned_rgb[frame % 2] + call->rows.begin * scale * width * 3;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < frames && !status; i++)
        status = call->on_frame(call->user, call->finished++, pixels + i * d->height * scale * width * 3,
                                (call->rows.end - call->rows.begin) * scale, width);
    return status;
}

static ith_status decode(decoding *call)
{
    ith_context *context = call->d->context;
    ith_status status = enqueue(call, 0);
    for (int64_t frame = 0; frame < call->frames && !status; frame++) {
        double traced = ith_trace_begin(context);
        status = ith_vae_device_wait(call->d);
        if (!status && frame + 1 < call->frames)
            status = enqueue(call, frame + 1);
        ith_trace_end(context, traced, "decode", "compute");
        if (!status)
            status = hand_over(call, frame);
    }
    return status;
}

ith_status ith_vae_device_decode(ith_context *context, const ith_vae *vae, const float *latents,
                                 const ith_vae_extent *extent, ith_vae_frame_fn on_frame, void *user,
                                 double *load_seconds)
{
    const double begin = ith_clock_seconds();
    decoding call = {.latents = latents,
                     .frames = extent->frames,
                     .rows = ith_vae_band_of(extent),
                     .on_frame = on_frame,
                     .user = user};
    ith_status status = ith_vae_device_create(context, vae, extent, &call.d);
    if (!status)
        status = ith_vae_device_open(call.d);
    if (load_seconds)
        *load_seconds += ith_clock_seconds() - begin;
    if (!status)
        status = decode(&call);
    ith_vae_device_free(&call.d);
    return status;
}

/* Makes an autoencoder and a decoder without weights and memory on the device, to count their bytes. */
static ith_status sketch(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                         const ith_vae_extent *extent, int64_t *on_host, int64_t *on_device)
{
    ith_vae *vae = NULL;
    ith_vae_device *d = NULL;
    ith_status status = ith_vae_create(context, config, ITH_VAE_DECODER, types, &vae);
    if (!status)
        status = ith_vae_device_create(context, vae, extent, &d);
    if (!status)
        status = ith_vae_device_count(d, on_device);
    if (!status)
        *on_host = ith_vae_bytes(vae) + ith_vae_device_host_bytes(d);
    ith_vae_device_free(&d);
    ith_vae_free(context, &vae);
    return status;
}

ith_status ith_vae_device_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                       const ith_vae_extent *extent, int64_t *bytes)
{
    int64_t on_device;
    return sketch(context, config, types, extent, bytes, &on_device);
}

ith_status ith_vae_decode_device_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                       const ith_vae_extent *extent, int64_t *bytes)
{
    const char *reason;
    int64_t on_host;
    *bytes = 0;
    if (!ith_vae_device_serves(context, &reason))
        return ITH_OK;
    return sketch(context, config, types, extent, &on_host, bytes);
}
