/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's layers for one size of picture, and the memory of its frames (vae_memory.h). */
#include "../../base/size.h"
#include "vae_decoder.h"

#include <ithaca/wan.h>

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Rows [begin, end) and `more` rows above and below, from an even row to an even row, as far as a frame of `height`
 * rows has them. F(2x2, 3x3) computes pairs of rows from even rows on. */
static ith_vae_span widen(ith_vae_span rows, int64_t more, int64_t height)
{
    return (ith_vae_span){ith_max64(rows.begin - more, 0) / 2 * 2, ith_min64(ith_round_up(rows.end + more, 2), height)};
}

/* Chooses the rows that each level computes, from the last level to the first, so that the rows of the band are right.
 * The band is cut out of the frame as if the rows beyond it were zeros. A convolution of 3 x 3 then makes one more row
 * at each edge wrong, so a level begins with one row more for each of its convolutions. */
static void choose_rows(ith_vae_decoder *d, int64_t height, const ith_vae_span *band)
{
    const ith_vae_config *config = &d->vae->config;
    const int64_t last = config->levels - 1, convs = 2 * (config->res_blocks + 1), scale = (int64_t)1 << last;
    ith_vae_span wanted = {band->begin * scale, band->end * scale}, needed = widen(wanted, 1, height << last);
    for (int64_t i = last; i >= 0; i--) {
        ith_vae_decoder_level *level = &d->levels[i];
        level->rows = widen(needed, convs, height << i);
        level->read = (ith_vae_span){needed.begin - level->rows.begin, needed.end - level->rows.begin};
        if (i == 0)
            break;
        const ith_vae_span made = widen(level->rows, 1, height << i);
        level->cut = level->rows.begin - made.begin;
        needed = (ith_vae_span){made.begin / 2, made.end / 2};
    }
    const int64_t first = d->levels[last].rows.begin;
    d->wanted = (ith_vae_span){wanted.begin - first, wanted.end - first};
}

/* Adds the layers of a level, all at one picture size. pictures: the number of frames that one latent
 * frame has become before this level. Returns this number after the level. */
static int64_t add_level(ith_vae_decoder *d, int64_t index, int64_t width, int64_t pictures)
{
    const ith_vae_level *weights = &d->vae->levels[index];
    ith_vae_decoder_level *level = &d->levels[index];
    const int64_t height = level->rows.end - level->rows.begin, read = level->read.end - level->read.begin;
    d->work.stage = ith_vae_level_name(index);
    level->height = height, level->width = width, level->in = weights->in, level->out = weights->out;
    level->repeats = weights->repeats;
    level->begin = (ith_vae_rows){NULL, pictures > 1 ? 2 : 1, height, width, weights->in, 0};
    level->end = (ith_vae_rows){NULL, pictures > 1 ? 2 : 1, height, width, weights->out, 0};
    for (int64_t i = 0; i <= d->vae->config.res_blocks; i++) {
        ith_vae_conv *residual = ith_vae_residual_add(&d->work, &weights->residuals[i], height, width, pictures);
        level->residuals = i ? level->residuals : residual;
    }
    /* Each row of the output of `time` becomes two rows of the input of `resample`. */
    const int64_t strip = ith_max64(ith_vae_strip(2 * read, 2 * width) / 2, 1);
    if (weights->time.in) {
        level->time = ith_vae_conv_add(&d->work, &weights->time, read, width, strip, pictures, false);
        level->time->first_times = 0;
        pictures *= 2;
    }
    const ith_conv_shape doubled = {
        .height = 2 * read, .width = 2 * width, .strip = 2 * strip, .pairs = pictures > 1, .doubled = true};
    if (weights->resample.in)
        level->resample = ith_vae_conv_add_shape(&d->work, &weights->resample, doubled, pictures);
    return pictures;
}

static void add_layers(ith_vae_decoder *d, int64_t height, int64_t width, const ith_vae_span *band)
{
    const ith_vae *vae = d->vae;
    ith_vae_work *work = &d->work;
    int64_t pictures = 1, scale = 1;
    choose_rows(d, height, band);
    work->stage = "latents";
    work->quant = ith_vae_linear_add(work, &vae->quant, height * width);
    d->in = ith_vae_conv_add(work, &vae->in, height, width, ith_vae_strip(height, width), 1, false);
    ith_vae_middle_add(work, height, width);
    for (int64_t i = 0; i < vae->config.levels; i++, scale *= 2)
        pictures = add_level(d, i, width * scale, pictures);
    const ith_vae_decoder_level *last = &d->levels[vae->config.levels - 1];
    work->stage = "picture";
    d->out = ith_vae_conv_add(work, &vae->out, last->height, last->width, ith_vae_strip(last->height, last->width),
                              pictures, pictures > 1);
    d->out->norm = vae->norm_out;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Sets the number of rows for which a level has memory, before and after its residual blocks. `resample` of the level
 * before hands on at most its strip and two rows at a time. Each convolution of the residual blocks lags at most two
 * rows behind its input. `resample` of this level lags two rows of its output behind, for which the shortcut around the
 * level reads one row of its input. Whole frames are needed at the first level, which follows the attention, and where
 * the frames of a pair are doubled one after the other. */
static void set_rows(ith_vae_decoder *d, int64_t index)
{
    ith_vae_decoder_level *level = &d->levels[index];
    if (index == 0)
        return;
    const int64_t given = d->levels[index - 1].resample->conv.shape.strip + 2;
    const int64_t rows = given + 4 * (d->vae->config.res_blocks + 1);
    const bool whole = level->time && level->end.slots > 1;
    if (!whole)
        level->end.rows = ith_min64(rows, level->height);
    if (ith_vae_level_in_place(&d->vae->levels[index]))
        level->begin.rows = level->end.rows;
    else if (!level->repeats)
        level->begin.rows = ith_min64(given, level->height);
    else if (!whole)
        level->begin.rows = ith_min64(rows + 1, level->height);
}

/* Lays out the rows of level `index`. The first level begins with a part of the frame in the middle. */
static void lay_out_level(ith_vae_decoder *d, int64_t index, ith_arena *arena)
{
    ith_vae_decoder_level *level = &d->levels[index];
    ith_vae_rows *latent = &d->work.middle.x;
    set_rows(d, index);
    if (index == 0) {
        ith_vae_rows_lay_out(latent, arena);
        level->begin.x = latent->x ? ith_vae_row(latent, 0, level->rows.begin) : NULL;
    } else {
        ith_vae_rows_lay_out(&level->begin, arena);
    }
    level->end.x = level->begin.x;
    if (!ith_vae_level_in_place(&d->vae->levels[index]))
        ith_vae_rows_lay_out(&level->end, arena);
}

/* Lays out the frames (ith_vae_work.lay_out_frames). work->temp holds, in turn, the latents of a frame before and after
 * post_quant_conv, and the arrays of the attention. It is not in use when the second level is, and shares its place
 * with the rows of the second and later levels. */
static void lay_out_frames(void *owner, ith_arena *arena)
{
    ith_vae_decoder *d = owner;
    const ith_vae_config *config = &d->vae->config;
    const int64_t latents = 2 * d->work.middle.pixels * config->z_dim * (int64_t)sizeof(float);
    lay_out_level(d, 0, arena);
    const int64_t begin = arena->used_bytes;
    d->work.temp = ith_arena_take(arena, 0, 1);
    for (int64_t i = 1; i < config->levels; i++)
        lay_out_level(d, i, arena);
    ith_arena_extend(arena, begin, ith_max64(ith_vae_attention_temp_bytes(&d->work.middle.attention), latents));
    d->frames = ith_arena_take(arena, d->out->conv.slots * (d->wanted.end - d->wanted.begin) * d->out->conv.shape.width,
                               ith_vae_patch_numbers(config) * (int64_t)sizeof(float));
}

/* The bytes of a decoder with its convolutions: conv_in, conv_out, and two in each of the residual blocks around the
 * attention; in a level two for each residual block, and `time` and `resample`. */
static int64_t decoder_size(const ith_vae_config *config)
{
    int64_t convs = 6 + config->levels * (2 * (config->res_blocks + 1) + 2);
    return (int64_t)sizeof(ith_vae_decoder) + convs * (int64_t)sizeof(ith_vae_conv);
}

ith_status ith_vae_decoder_create(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                                  ith_vae_decoder **out)
{
    const ith_vae_span band = ith_vae_band_of(extent);
    const int64_t bytes = decoder_size(&vae->config);
    ith_vae_decoder *d = ith_alloc_zero(context, 1, bytes, "a decoder");
    *out = d;
    if (!d)
        return ITH_ERR_MEMORY;
    d->vae = vae;
    ith_vae_work_begin(&d->work, context, vae, d->convs, lay_out_frames, d, bytes);
    add_layers(d, extent->height, extent->width, &band);
    ith_status status = d->work.status;
    if (status)
        ith_vae_decoder_free(out);
    return status;
}

void ith_vae_decoder_free(ith_vae_decoder **decoder)
{
    if (!*decoder)
        return;
    ith_context *context = (*decoder)->work.context;
    ith_vae_work_close(&(*decoder)->work);
    ith_free(context, *decoder);
    *decoder = NULL;
}
