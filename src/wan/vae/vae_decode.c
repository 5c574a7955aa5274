/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding: latents to frames.
 *
 *   z * std + mean -> post_quant_conv -> conv_in -> residual, attention, residual
 *     -> level 0 .. last: residual blocks, doubling -> norm, silu, conv_out -> clamp to [-1, 1]
 *
 * In Wan 2.2 a shortcut leads around each level that doubles (vae_shortcut.h), and conv_out makes the pixels of
 * squares.
 *
 * The reference decodes one latent frame at a time, which becomes 1, 2 and 4 frames on the way. Every convolution over
 * time looks back only, so each frame, or each pair of neighbours, may pass through all layers by itself, with the same
 * result. After the first doubling of frames they pass in pairs, because a convolution over a pair takes fewer
 * multiplications. Where a level doubles the frames of a pair, the two frames that its first frame becomes pass through
 * all later levels before its second frame is doubled. The first latent frame is not doubled in time. The convolutions
 * that double frames do not read it: the first frame that they read comes from the second latent frame.
 *
 * Within the levels, frames pass in strips of rows: each layer computes the rows whose input is complete and hands them
 * on. So a level needs memory for some rows only, unless it doubles the frames of a pair.
 *
 * If the context has a device with convolutions, the device decodes (vae_device.h). */
#include "vae_decoder.h"

#include "../../base/clock.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "vae_device.h"
#include "vae_shortcut.h"

#include <ithaca/wan.h>

#define PIXELS_TOGETHER 64 /* pixels that a thread doubles at a time */

/* The state of one call of ith_vae_decode. */
typedef struct decoding {
    ith_vae_decoder *decoder;
    bool first;       /* whether the first latent frame is being decoded */
    int64_t finished; /* number of frames that the caller has received */
    ith_vae_frame_fn on_frame;
    void *user;
} decoding;

/* ---- Levels ---------------------------------------------------------------------------------------------------- */

static int64_t wanted_rows(const ith_vae_decoder *d)
{
    return d->wanted.end - d->wanted.begin;
}

/* The wanted rows of the decoded frame in slot `slot` of the last convolution. */
static float *frame_of(const ith_vae_decoder *d, int64_t slot)
{
    return d->frames + slot * wanted_rows(d) * d->out->conv.shape.width * d->out->conv.shape.out;
}

/* x clamped to [-1, 1]; NaN if x is NaN or infinite. */
static float clamped(float x)
{
    const float zero = x - x; /* NaN where x is not finite */
    return (x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x) + zero;
}

/* Keeps pixels of the wanted rows of a finished frame. A pixel of the convolution holds a square of patch x patch
 * pixels: [colour][column][row]. */
static void finish_pixels(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const ith_vae_decoder *d = user;
    const int64_t patch = d->vae->config.patch, width = d->out->conv.shape.width * patch;
    if (row < d->wanted.begin || row >= d->wanted.end)
        return;
    float *to = frame_of(d, slot) + ((row - d->wanted.begin) * patch * width + first * patch) * 3;
    for (int64_t i = 0; i < 3 * count && patch == 1; i++)
        to[i] = clamped(pixels[i]);
    for (int64_t i = 0; i < count && patch > 1; i++)
        for (int64_t colour = 0; colour < 3; colour++)
            for (int64_t x = 0; x < patch; x++)
                for (int64_t y = 0; y < patch; y++)
                    to[(y * width + i * patch + x) * 3 + colour] = clamped(*pixels++);
}

/* Applies the last norm, silu, conv_out and the clamp to the rows before row `taken`, and passes frames that are
 * complete to the caller. */
static ith_status finish_rows(decoding *call, int64_t taken)
{
    ith_vae_decoder *d = call->decoder;
    const ith_conv *conv = &d->out->conv;
    const ith_conv_output output = {finish_pixels, d};
    const ith_vae_rows *rows = &d->levels[d->vae->config.levels - 1].end;
    const int64_t patch = d->vae->config.patch;
    ith_status status = ith_vae_conv_feed(&d->work, d->out, rows, taken, &output);
    for (int64_t slot = conv->first; slot < conv->slots && conv->made == conv->shape.height && !status; slot++) {
        d->work.shown_most += ITH_PROGRESS_UNIT;
        status = call->on_frame(call->user, call->finished++, frame_of(d, slot), wanted_rows(d) * patch,
                                conv->shape.width * patch);
    }
    return status;
}

static ith_status decode_rows(decoding *call, int64_t index, int64_t taken);

/* Whether level `index` doubles the frames of the current latent frame. */
static bool doubles(const decoding *call, int64_t index)
{
    return call->decoder->levels[index].time && !call->first;
}

/* Begins the next frame or pair in all layers after the residual blocks of level `index`. */
static void begin_after(const decoding *call, int64_t index)
{
    const ith_vae_decoder *d = call->decoder;
    const int64_t blocks = d->vae->config.res_blocks + 1;
    for (; d->levels[index].resample; index++) {
        if (doubles(call, index))
            ith_conv_begin(&d->levels[index].time->conv);
        ith_conv_begin(&d->levels[index].resample->conv);
        for (int64_t i = 0; i < blocks; i++)
            ith_vae_residual_begin(&d->levels[index + 1].residuals[2 * i]);
    }
    ith_conv_begin(&d->out->conv);
}

/* The argument `user` of take_resampled. */
typedef struct resampling {
    const ith_vae_decoder_level *level;
    ith_vae_decoder_level *next;
    int64_t doubled; /* the slot of the frame that the level doubles, if it doubles frames */
} resampling;

/* Adds the shortcut around the level to `count` pixels y that `resample` has made. The frame that the first latent
 * frame becomes is the second of two, as slots count. */
static void add_shortcut(const resampling *r, int64_t slot, int64_t row, int64_t first, int64_t count, float *y)
{
    const ith_vae_decoder_level *level = r->level;
    const int64_t frame = level->time ? slot : 0, copies = ith_vae_copies(level->time), out = r->next->in;
    const float *x = ith_vae_row(&level->begin, level->time ? r->doubled : slot, level->read.begin + row / 2);
    for (int64_t column = first; column < first + count; column++)
        ith_vae_shortcut_add(y + (column - first) * out, out, x + column / 2 * level->in, copies, level->repeats,
                             (frame * 2 + row % 2) * 2 + column % 2);
}

/* Keeps the rows of `resample` that the next level computes with. */
static void take_resampled(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const resampling *r = user;
    ith_vae_rows *rows = &r->next->begin;
    const int64_t kept = row - r->next->cut;
    if (kept < 0 || kept >= r->next->height)
        return;
    ith_vae_rows_store(rows, slot, kept, first, count, pixels);
    if (r->level->repeats)
        add_shortcut(r, slot, row, first, count, ith_vae_row(rows, slot, kept) + first * rows->channels);
}

/* Applies `resample` of level `index` when its input is complete up to row `taken` of the doubled rows, and then all
 * later levels. doubled: the slot of the frame that the level doubles, if it doubles frames. */
static ith_status resample(decoding *call, int64_t index, int64_t doubled, int64_t taken)
{
    ith_vae_decoder *d = call->decoder;
    ith_vae_conv *conv = d->levels[index].resample;
    ith_vae_decoder_level *next = &d->levels[index + 1];
    resampling r = {&d->levels[index], next, doubled};
    const ith_conv_output output = {take_resampled, &r};
    ith_status status = ith_vae_conv_advance(&d->work, conv, taken, &output);
    int64_t made = ith_min64(ith_max64(conv->conv.made - next->cut, 0), next->height);
    return status ? status : decode_rows(call, index + 1, made);
}

/* The number of rows before row `taken` of a level that `time` and `resample` read. */
static int64_t rows_read(const ith_vae_decoder_level *level, int64_t taken)
{
    return ith_min64(ith_max64(taken - level->read.begin, 0), level->read.end - level->read.begin);
}

/* The rows at the end of a level from the first one that `time` and `resample` read. */
static ith_vae_rows read_from(const ith_vae_decoder_level *level)
{
    ith_vae_rows x = level->end;
    x.skipped = level->read.begin;
    return x;
}

/* Doubles height and width of the rows before row `taken` of level `index`. */
static ith_status enlarge(decoding *call, int64_t index, int64_t taken)
{
    ith_vae_work *work = &call->decoder->work;
    const ith_vae_decoder_level *level = &call->decoder->levels[index];
    const ith_vae_rows x = read_from(level);
    const ith_conv *conv = &level->resample->conv;
    const int64_t strip = ith_max64(conv->shape.strip / 2, 1), skipped = conv->slots - x.slots;
    ith_status status = ITH_OK;
    taken = rows_read(level, taken);
    while (conv->taken < 2 * taken && !status) {
        const int64_t begin = conv->taken / 2, end = ith_min64(begin + strip, taken);
#pragma omp parallel for collapse(3) schedule(dynamic, PIXELS_TOGETHER)
        for (int64_t slot = conv->first; slot < conv->slots; slot++)
            for (int64_t row = begin; row < end; row++)
                for (int64_t column = 0; column < level->width; column++)
                    ith_vae_conv_put_doubled(work, level->resample, slot, row, column,
                                             ith_vae_row(&x, slot - skipped, row) + column * level->out);
        status = resample(call, index, x.slots - 1, 2 * end);
    }
    return status;
}

/* The argument `user` of take_halves. */
typedef struct time_halves {
    const ith_vae_work *work;
    const ith_vae_decoder_level *level;
} time_halves;

/* Makes pixels of the output of `time` the input of `resample`. A pixel holds the channels of the first
 * frame and then the channels of the second. */
static void take_halves(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const time_halves *halves = user;
    const int64_t channels = halves->level->out;
    (void)slot; /* `time` takes one frame at a time */
    for (int64_t i = 0; i < 2 * count; i++)
        ith_vae_conv_put_doubled(halves->work, halves->level->resample, i % 2, row, first + i / 2,
                                 pixels + i * channels);
}

/* Doubles the frame in slot `slot` of level `index`, and its height and width, as far as its rows before row `taken`
 * allow. */
static ith_status enlarge_in_time(decoding *call, int64_t index, int64_t slot, int64_t taken)
{
    ith_vae_work *work = &call->decoder->work;
    const ith_vae_decoder_level *level = &call->decoder->levels[index];
    time_halves halves = {work, level};
    const ith_conv_output output = {take_halves, &halves};
    ith_conv *conv = &level->time->conv;
    ith_vae_rows frame = read_from(level);
    ith_status status = ITH_OK;
    frame.x += slot * frame.rows * frame.width * frame.channels, frame.slots = 1;
    taken = rows_read(level, taken);
    while (conv->taken < taken && !status) {
        const int64_t end = ith_min64(conv->taken + conv->shape.strip, taken);
        status = ith_vae_conv_feed(work, level->time, &frame, end, &output);
        if (!status)
            status = resample(call, index, slot, 2 * end);
    }
    return status;
}

/* Doubles the frames of a pair one after the other. */
static ith_status enlarge_pair(decoding *call, int64_t index, int64_t taken)
{
    const ith_vae_decoder_level *level = &call->decoder->levels[index];
    ith_status status = enlarge_in_time(call, index, 0, taken);
    if (status || taken < level->height)
        return status;
    begin_after(call, index);
    return enlarge_in_time(call, index, 1, taken);
}

/* Computes level `index` as far as the rows of its first frame or pair before row `taken` allow, and then all later
 * levels. */
static ith_status decode_rows(decoding *call, int64_t index, int64_t taken)
{
    ith_vae_decoder *d = call->decoder;
    const ith_vae_decoder_level *level = &d->levels[index];
    ith_status status = ITH_OK;
    for (int64_t i = 0; i <= d->vae->config.res_blocks && !status; i++) {
        ith_vae_conv *residual = &level->residuals[2 * i];
        status = ith_vae_residual_feed(&d->work, residual, i ? &level->end : &level->begin, &level->end, taken);
        taken = residual[1].conv.made;
    }
    if (status)
        return status;
    if (!level->resample)
        return finish_rows(call, taken);
    if (!doubles(call, index))
        return enlarge(call, index, taken);
    return level->end.slots == 1 ? enlarge_in_time(call, index, 0, taken) : enlarge_pair(call, index, taken);
}

/* ---- Latent frames --------------------------------------------------------------------------------------------- */

/* Decodes one latent frame: first the layers at the size of the latents, then the levels that enlarge the picture. */
static ith_status decode_latent(decoding *call, const float *latents, int64_t frames, int64_t frame)
{
    ith_vae_decoder *d = call->decoder;
    ith_vae_work *work = &d->work;
    const int64_t channels = d->vae->config.z_dim;
    ith_vae_rows *x = &work->middle.x;
    float *z = (float *)(void *)work->temp, *mixed = z + work->middle.pixels * channels;
    const ith_vae_decoder_level *first = &d->levels[0];
    const ith_vae_rows input = {mixed, 1, x->rows, x->width, channels, 0};
    const ith_conv_output output = {ith_vae_rows_store, x};
    ith_vae_unnormalise(&d->vae->config, latents, frames, frame, work->middle.pixels, z);
    ith_status status = ith_vae_linear_apply(work, work->quant, work->middle.pixels, z, mixed);
    ith_conv_begin(&d->in->conv);
    if (!status)
        status = ith_vae_conv_feed(work, d->in, &input, x->rows, &output);
    if (!status)
        status = ith_vae_middle_apply(work);
    if (status)
        return status;
    call->first = frame == 0;
    for (int64_t i = 0; i <= d->vae->config.res_blocks; i++)
        ith_vae_residual_begin(&first->residuals[2 * i]);
    begin_after(call, 0);
    return decode_rows(call, 0, first->height);
}

/* Prepares the display of progress for one latent frame. */
static void begin_latent(ith_vae_decoder *d, int64_t frame, int64_t frames)
{
    const int64_t stride = d->vae->config.stride_time, begin = frame ? (frame - 1) * stride + 1 : 0;
    const ith_span shown = {.stage = ITH_STAGE_DECODE,
                            .begin = begin * ITH_PROGRESS_UNIT,
                            .end = (frame * stride + 1) * ITH_PROGRESS_UNIT,
                            .total = ((frames - 1) * stride + 1) * ITH_PROGRESS_UNIT};
    ith_vae_work_begin_latent(&d->work, frame == 0, &shown);
    d->work.shown_most = shown.begin + ITH_PROGRESS_UNIT - 1;
}

static ith_status check_band(ith_context *context, const ith_vae_extent *extent)
{
    const ith_vae_span *band = extent->band;
    if (!band || (band->begin >= 0 && band->begin < band->end && band->end <= extent->height))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "rows %lld to %lld of latents of %lld rows cannot be decoded",
                    (long long)band->begin, (long long)band->end, (long long)extent->height);
}

ith_status ith_vae_decode(ith_context *context, const ith_vae *vae, const float *latents, const ith_vae_extent *extent,
                          ith_vae_frame_fn on_frame, void *user, double *load_seconds)
{
    const double begin = ith_clock_seconds();
    const char *reason = NULL;
    decoding call = {.on_frame = on_frame, .user = user};
    ith_status status = ith_vae_check_size(context, extent, "decoded");
    if (!status)
        status = check_band(context, extent);
    if (!status && ith_vae_device_serves(context, &reason))
        return ith_vae_device_decode(context, vae, latents, extent, on_frame, user, load_seconds);
    if (reason)
        ith_log(context, ITH_LOG_WARNING, "frames are decoded on the processor: %s", reason);
    if (!status)
        status = ith_vae_decoder_create(context, vae, extent, &call.decoder);
    if (!status)
        status = ith_vae_work_open(&call.decoder->work);
    if (load_seconds)
        *load_seconds += ith_clock_seconds() - begin;
    for (int64_t frame = 0; frame < extent->frames && !status; frame++) {
        begin_latent(call.decoder, frame, extent->frames);
        double traced = ith_trace_begin(context);
        status = decode_latent(&call, latents, extent->frames, frame);
        ith_trace_end(context, traced, "decode", "compute");
    }
    ith_vae_decoder_free(&call.decoder);
    return status;
}

/* ---- Predictions ------------------------------------------------------------------------------------------------ */

/* Makes an autoencoder and a decoder as decoding does, but reads no weights and allocates no buffers. */
static ith_status sketch(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                         const ith_vae_extent *extent, ith_vae **vae, ith_vae_decoder **decoder)
{
    ith_status status = ith_vae_create(context, config, ITH_VAE_DECODER, types, vae);
    return status ? status : ith_vae_decoder_create(context, *vae, extent, decoder);
}

ith_status ith_vae_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                const ith_vae_extent *extent, int64_t *bytes)
{
    ith_vae *vae = NULL;
    ith_vae_decoder *decoder = NULL;
    int64_t decode = 0;
    const char *reason;
    if (ith_vae_device_serves(context, &reason))
        return ith_vae_device_decode_bytes(context, config, types, extent, bytes);
    ith_status status = sketch(context, config, types, extent, &vae, &decoder);
    if (!status)
        status = ith_vae_work_bytes(&decoder->work, &decode);
    if (!status)
        *bytes = ith_vae_bytes(vae) + decode;
    ith_vae_decoder_free(&decoder);
    ith_vae_free(context, &vae);
    return status;
}

/* The shortcuts around levels: each number that `resample` makes is read, summed and written. */
static void list_shortcuts(const ith_vae_decoder *d, int64_t frames, const ith_work_list *list)
{
    for (int64_t i = 0; i + 1 < d->vae->config.levels; i++) {
        const ith_vae_conv *c = d->levels[i].resample;
        const ith_conv_shape *s = &c->conv.shape;
        const double numbers = (double)s->height * (double)s->width * (double)s->out;
        if (d->levels[i].repeats)
            ith_work_take_rows(list, ITH_VAE_NORMS, ith_vae_conv_times(c, frames), 2 * (double)sizeof(float) * numbers);
    }
}

ith_status ith_vae_decode_list(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                               const ith_vae_extent *extent, const ith_work_list *list)
{
    ith_vae *vae = NULL;
    ith_vae_decoder *decoder = NULL;
    ith_status status = sketch(context, config, types, extent, &vae, &decoder);
    if (!status) {
        ith_vae_work_list(&decoder->work, extent->frames, list);
        list_shortcuts(decoder, extent->frames, list);
    }
    ith_vae_decoder_free(&decoder);
    ith_vae_free(context, &vae);
    return status;
}
