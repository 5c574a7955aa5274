/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding: frames to latents.
 *
 *   conv_in -> level 0 .. last: residual blocks, halving -> residual, attention, residual -> norm, silu, conv_out
 *     -> quant_conv -> (mu - mean) / std
 *
 * In Wan 2.2, conv_in reads squares of patch x patch pixels, and shortcuts without weights lead around the levels.
 *
 * The reference encodes the first frame by itself, then four frames at a time. Every convolution over time looks back
 * only, so each frame, or each pair of neighbours, may pass through the layers by itself, with the same result. Frames
 * pass in pairs as far as a later level halves their number, because a convolution over a pair takes fewer
 * multiplications. Where a level makes one frame of a pair, this frame waits for the next one if the following level
 * takes pairs too. The first frame is not halved in time: it passes the convolutions that halve frames unchanged, and
 * they keep it, because they read it with the next pair.
 *
 * Within the levels, frames pass in strips of rows: each layer computes the rows whose input is complete and hands them
 * on. So a level needs memory for some rows only, unless a frame waits there. */
#include "vae_encoder.h"

#include "../../base/clock.h"
#include "../../base/size.h"
#include "../../base/trace.h"

#include <ithaca/wan.h>

/* The state of one call of ith_vae_encode. */
typedef struct encoding {
    ith_vae_encoder *encoder;
    bool first;    /* whether the first frame is being encoded */
    int64_t taken; /* number of frames that have been taken from the caller */
    int64_t made;  /* number of latent frames that are complete */
    ith_vae_rows_fn give_rows;
    void *user;
    float *latents;
    int64_t frames; /* of the latents */
} encoding;

/* ---- The middle ------------------------------------------------------------------------------------------------- */

/* Computes (z - mean) / std for one latent frame, from [pixels][channels] to [channels][frames][pixels]. */
static void normalise(const encoding *call, const float *z)
{
    const ith_vae_config *config = &call->encoder->vae->config;
    const int64_t pixels = call->encoder->work.middle.pixels;
    for (int64_t c = 0; c < config->z_dim; c++)
        for (int64_t i = 0; i < pixels; i++)
            call->latents[(c * call->frames + call->made) * pixels + i] =
                (z[i * config->z_dim + c] - config->mean[c]) / config->std[c];
}

/* Makes a latent frame from the rows at the end of the last level. */
static ith_status finish_latent(encoding *call)
{
    ith_vae_encoder *e = call->encoder;
    ith_vae_work *work = &e->work;
    const ith_vae_rows *x = &work->middle.x;
    float *moments = (float *)(void *)work->temp, *z = moments + work->middle.pixels * e->vae->quant.in;
    ith_vae_rows rows = {moments, 1, x->rows, x->width, e->vae->quant.in, 0};
    const ith_conv_output output = {ith_vae_rows_store, &rows};
    ith_status status = ith_vae_middle_apply(work);
    ith_conv_begin(&e->out->conv);
    if (!status)
        status = ith_vae_conv_feed(work, e->out, x, x->rows, &output);
    if (!status)
        status = ith_vae_linear_apply(work, work->quant, work->middle.pixels, moments, z);
    if (!status)
        normalise(call, z);
    call->made++;
    return status;
}

/* ---- Levels ---------------------------------------------------------------------------------------------------- */

/* Whether the frame or pair that passes level `index` completes a frame or a pair of the next level. */
static bool completes(const encoding *call, int64_t index)
{
    const ith_vae_encoder_level *level = &call->encoder->levels[index], *next = level + 1;
    return !level->time || next->filling == next->begin.slots - 1;
}

/* Begins the next frame or pair in all layers of level `index`, and in later levels of which it completes a
 * frame or pair. */
static void begin_level(const encoding *call, int64_t index)
{
    ith_vae_encoder_level *level = &call->encoder->levels[index], *next = level + 1;
    for (int64_t i = 0; i < ith_vae_level_blocks(&call->encoder->vae->config, ITH_VAE_ENCODER); i++)
        ith_vae_residual_begin(&level->residuals[2 * i]);
    if (!level->resample)
        return;
    ith_conv_begin(&level->resample->conv);
    if (level->time) {
        ith_conv_begin(&level->time->conv);
        next->filling = call->first ? next->begin.slots - 1 : (next->filling + 1) % next->begin.slots;
    }
    if (completes(call, index))
        begin_level(call, index + 1);
}

/* The argument `user` of take_halved and take_frame. */
typedef struct halving {
    const encoding *call;
    const ith_vae_encoder_level *level, *next;
} halving;

/* Adds the shortcut around a level to `count` pixels y that the level has made. Its frames are the second frame of a
 * pair, or both if the level halves the number of frames. The frame before the first frame of a video is zero. */
static void add_shortcut(const encoding *call, const ith_vae_encoder_level *level, int64_t slot, int64_t row,
                         int64_t first, int64_t count, float *y)
{
    const int64_t copies = level->resample ? ith_vae_copies(level->time) : 1, side = copies > 1 ? 2 : 1;
    const float *x[ITH_VAE_MOST_COPIES];
    for (int64_t column = first; column < first + count; column++, y += level->out) {
        for (int64_t i = 0; i < copies; i++) {
            const int64_t frame = level->time ? i / 4 : slot;
            const float *from = ith_vae_row(&level->begin, frame, side * row + i / side % side);
            x[i] = call->first && frame < level->begin.slots - 1 ? NULL : from + (side * column + i % side) * level->in;
        }
        ith_vae_shortcut_add_means(y, level->out, x, copies, level->averaged);
    }
}

/* Makes pixels of a level the input of the next one. slot: of the rows where the level ends. */
static void hand_on(const halving *h, int64_t slot, int64_t to, int64_t row, int64_t first, int64_t count,
                    const float *pixels)
{
    ith_vae_rows rows = h->next->begin;
    ith_vae_rows_store(&rows, to, row, first, count, pixels);
    if (h->level->averaged)
        add_shortcut(h->call, h->level, slot, row, first, count, ith_vae_row(&rows, to, row) + first * rows.channels);
}

/* Makes pixels of `resample` the input of `time`, or of the next level. The first frame of a video becomes both. */
static void take_halved(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const halving *h = user;
    if (h->level->time)
        ith_vae_conv_put(&h->call->encoder->work, h->level->time, slot, row, first, count, pixels);
    if (!h->level->time || h->call->first)
        hand_on(h, slot, slot - (h->level->end.slots - h->next->begin.slots), row, first, count, pixels);
}

/* Makes pixels of `time` the input of the next level. */
static void take_frame(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const halving *h = user;
    hand_on(h, slot, h->next->filling, row, first, count, pixels);
}

static ith_status encode_rows(encoding *call, int64_t index, int64_t taken);

/* Halves height and width, and the number of frames, of the rows before row `taken` of level `index`. */
static ith_status reduce(encoding *call, int64_t index, int64_t taken)
{
    ith_vae_work *work = &call->encoder->work;
    const ith_vae_encoder_level *level = &call->encoder->levels[index];
    halving h = {call, level, level + 1};
    const ith_conv_output halved = {take_halved, &h}, frame = {take_frame, &h};
    const ith_conv *conv = &level->resample->conv;
    ith_status status = ITH_OK;
    while (conv->taken < taken && !status) {
        const int64_t end = ith_min64(conv->taken + conv->shape.strip, taken);
        status = ith_vae_conv_feed(work, level->resample, &level->end, end, &halved);
        if (!status && level->time)
            status = ith_vae_conv_advance(work, level->time, conv->made, &frame);
        if (!status && completes(call, index))
            status = encode_rows(call, index + 1, conv->made);
    }
    return status;
}

/* Completes rows [begin, end) of the last level, and the latent frame if these are its last rows. */
static ith_status finish_rows(encoding *call, const ith_vae_encoder_level *level, int64_t begin, int64_t end)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = begin; row < end; row++)
        if (level->averaged)
            add_shortcut(call, level, 0, row, 0, level->width, ith_vae_row(&level->end, 0, row));
    return end == level->height ? finish_latent(call) : ITH_OK;
}

/* Computes level `index` as far as the rows before row `taken` allow, and then all later levels. */
static ith_status encode_rows(encoding *call, int64_t index, int64_t taken)
{
    ith_vae_encoder *e = call->encoder;
    const ith_vae_encoder_level *level = &e->levels[index];
    const int64_t blocks = ith_vae_level_blocks(&e->vae->config, ITH_VAE_ENCODER);
    const int64_t made = level->residuals[2 * blocks - 1].conv.made;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < blocks && !status; i++) {
        ith_vae_conv *residual = &level->residuals[2 * i];
        status = ith_vae_residual_feed(&e->work, residual, i ? &level->end : &level->begin, &level->end, taken);
        taken = residual[1].conv.made;
    }
    if (status)
        return status;
    return level->resample ? reduce(call, index, taken) : finish_rows(call, level, made, taken);
}

/* ---- Frames ---------------------------------------------------------------------------------------------------- */

/* Makes a pixel of the input of each square of pixels: [colour][column][row]. */
static void gather_squares(const ith_vae_encoder *e, int64_t rows, float *to)
{
    const int64_t patch = e->vae->config.patch, width = e->input.width;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows * width; i++) {
        const float *from = e->pixels + (i / width * patch * width * patch + i % width * patch) * 3;
        float *pixel = to + i * e->input.channels;
        for (int64_t colour = 0; colour < 3; colour++)
            for (int64_t x = 0; x < patch; x++)
                for (int64_t y = 0; y < patch; y++)
                    *pixel++ = from[(y * width * patch + x) * 3 + colour];
    }
}

/* Takes the next rows of the input, `count` in number, of a frame or pair from the caller. */
static ith_status take_rows(encoding *call, int64_t count)
{
    const ith_vae_encoder *e = call->encoder;
    const ith_conv *conv = &e->in->conv;
    const int64_t patch = e->vae->config.patch;
    ith_status status = ITH_OK;
    for (int64_t slot = conv->first; slot < conv->slots && !status; slot++) {
        float *to = ith_vae_row(&e->input, slot, conv->taken);
        status = call->give_rows(call->user, call->taken + slot - conv->first, conv->taken * patch, count * patch,
                                 e->pixels ? e->pixels : to);
        if (!status && e->pixels)
            gather_squares(e, count, to);
    }
    return status;
}

/* Encodes the next frame or pair. */
static ith_status encode_frames(encoding *call)
{
    ith_vae_encoder *e = call->encoder;
    const ith_conv *conv = &e->in->conv;
    const ith_conv_output output = {ith_vae_rows_store, &e->levels[0].begin};
    ith_status status = ITH_OK;
    ith_conv_begin(&e->in->conv);
    begin_level(call, 0);
    while (conv->taken < conv->shape.height && !status) {
        const int64_t count = ith_min64(conv->shape.strip, conv->shape.height - conv->taken);
        status = take_rows(call, count);
        if (!status)
            status = ith_vae_conv_feed(&e->work, e->in, &e->input, conv->taken + count, &output);
        if (!status)
            status = encode_rows(call, 0, conv->made);
    }
    call->taken += conv->slots - conv->first;
    return status;
}

/* Encodes the frames of one latent frame. */
static ith_status encode_latent(encoding *call, int64_t frame)
{
    ith_vae_work *work = &call->encoder->work;
    const int64_t stride = call->encoder->vae->config.stride_time;
    const ith_span shown = {.stage = ITH_STAGE_ENCODE,
                            .begin = call->taken * ITH_PROGRESS_UNIT,
                            .end = (frame * stride + 1) * ITH_PROGRESS_UNIT,
                            .total = ((call->frames - 1) * stride + 1) * ITH_PROGRESS_UNIT};
    ith_status status = ITH_OK;
    call->first = frame == 0;
    ith_vae_work_begin_latent(work, call->first, &shown);
    work->shown_most = shown.end - 1;
    while (call->taken < frame * stride + 1 && !status)
        status = encode_frames(call);
    if (!status)
        ith_observer_show(work->context, shown.stage, shown.end, shown.total);
    return status;
}

ith_status ith_vae_encode(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                          ith_vae_rows_fn give_rows, void *user, float *latents, double *load_seconds)
{
    const double begin = ith_clock_seconds();
    encoding call = {.give_rows = give_rows, .user = user, .latents = latents, .frames = extent->frames};
    ith_status status = ith_vae_check_size(context, extent, "encoded");
    if (!status)
        status = ith_vae_encoder_create(context, vae, extent, &call.encoder);
    if (!status)
        status = ith_vae_work_open(&call.encoder->work);
    if (load_seconds)
        *load_seconds += ith_clock_seconds() - begin;
    for (int64_t frame = 0; frame < extent->frames && !status; frame++) {
        double traced = ith_trace_begin(context);
        status = encode_latent(&call, frame);
        ith_trace_end(context, traced, "encode", "compute");
    }
    ith_vae_encoder_free(&call.encoder);
    return status;
}

/* ---- Predictions ------------------------------------------------------------------------------------------------ */

/* Makes an autoencoder and an encoder as encoding does, but reads no weights and allocates no buffers. */
static ith_status sketch(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                         const ith_vae_extent *extent, ith_vae **vae, ith_vae_encoder **encoder)
{
    ith_status status = ith_vae_create(context, config, ITH_VAE_ENCODER, types, vae);
    return status ? status : ith_vae_encoder_create(context, *vae, extent, encoder);
}

ith_status ith_vae_encode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                const ith_vae_extent *extent, int64_t *bytes)
{
    ith_vae *vae = NULL;
    ith_vae_encoder *encoder = NULL;
    int64_t encode = 0;
    ith_status status = sketch(context, config, types, extent, &vae, &encoder);
    if (!status)
        status = ith_vae_work_bytes(&encoder->work, &encode);
    if (!status)
        *bytes = ith_vae_bytes(vae) + encode;
    ith_vae_encoder_free(&encoder);
    ith_vae_free(context, &vae);
    return status;
}

ith_status ith_vae_encode_list(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                               const ith_vae_extent *extent, const ith_work_list *list)
{
    ith_vae *vae = NULL;
    ith_vae_encoder *encoder = NULL;
    ith_status status = sketch(context, config, types, extent, &vae, &encoder);
    if (!status)
        ith_vae_work_list(&encoder->work, extent->frames, list);
    ith_vae_encoder_free(&encoder);
    ith_vae_free(context, &vae);
    return status;
}
