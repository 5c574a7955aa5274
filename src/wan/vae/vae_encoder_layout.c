/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder's layers for one size of picture, and the memory of its frames (vae_memory.h). */
#include "../../base/size.h"
#include "vae_encoder.h"

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Adds the layers of a level, all at one picture size. pictures: the number of its frames from which a latent frame
 * is made. Returns this number after the level. */
static int64_t add_level(ith_vae_encoder *e, int64_t index, int64_t height, int64_t width, int64_t pictures)
{
    const ith_vae_level *weights = &e->vae->levels[index];
    ith_vae_encoder_level *level = &e->levels[index];
    const int64_t slots = pictures > 1 ? 2 : 1, strip = ith_vae_strip(height, width);
    *level = (ith_vae_encoder_level){.height = height, .width = width, .in = weights->in, .out = weights->out};
    level->averaged = weights->averaged;
    level->begin = (ith_vae_rows){NULL, slots, height, width, weights->in, 0};
    level->end = (ith_vae_rows){NULL, slots, height, width, weights->out, 0};
    e->work.stage = ith_vae_level_name(index);
    for (int64_t i = 0; i < ith_vae_level_blocks(&e->vae->config, ITH_VAE_ENCODER); i++) {
        ith_vae_conv *residual = ith_vae_residual_add(&e->work, &weights->residuals[i], height, width, pictures);
        level->residuals = i ? level->residuals : residual;
    }
    ith_conv_shape shape = {.height = height, .width = width, .strip = strip, .pairs = slots > 1, .halves = true};
    if (weights->resample.in)
        level->resample = ith_vae_conv_add_shape(&e->work, &weights->resample, shape, pictures);
    if (weights->time.in) { /* `resample` lags at most one of its rows behind its input, and catches up at the end */
        shape = (ith_conv_shape){
            .height = height / 2, .width = width / 2, .strip = strip / 2 + 1, .pairs = true, .halves_time = true};
        pictures /= 2;
        level->time = ith_vae_conv_add_shape(&e->work, &weights->time, shape, pictures);
    }
    return pictures;
}

static void add_layers(ith_vae_encoder *e, int64_t height, int64_t width)
{
    const ith_vae *vae = e->vae;
    ith_vae_work *work = &e->work;
    const int64_t scale = (int64_t)1 << (vae->config.levels - 1), strip = ith_vae_strip(height * scale, width * scale);
    int64_t pictures = vae->config.stride_time;
    e->input = (ith_vae_rows){NULL, pictures > 1 ? 2 : 1, strip, width * scale, vae->in.in, 0};
    work->stage = "picture";
    e->in = ith_vae_conv_add(work, &vae->in, height * scale, width * scale, strip, pictures, pictures > 1);
    for (int64_t i = 0; i < vae->config.levels; i++)
        pictures = add_level(e, i, (height * scale) >> i, (width * scale) >> i, pictures);
    work->stage = "latents";
    ith_vae_middle_add(work, height, width);
    e->out = ith_vae_conv_add(work, &vae->out, height, width, ith_vae_strip(height, width), 1, false);
    e->out->norm = vae->norm_out;
    work->quant = ith_vae_linear_add(work, &vae->quant, height * width);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Sets the number of rows for which a level has memory, before and after its residual blocks. The convolution before
 * the level hands on at most its strip and two rows at a time, or half of this if it halves the height. Each
 * convolution of the residual blocks lags at most two rows behind its input. `resample` lags two rows more, and the
 * shortcut around the level is added to its pixels. Whole frames are needed where a frame waits for the other frame of
 * its pair, and at the end of the last level, before the attention. */
static void set_rows(ith_vae_encoder *e, int64_t index)
{
    ith_vae_encoder_level *level = &e->levels[index];
    const ith_vae_encoder_level *before = index ? level - 1 : NULL;
    const int64_t given = before ? before->resample->conv.shape.strip / 2 + 1 : e->in->conv.shape.strip + 2;
    const int64_t rows = given + 4 * ith_vae_level_blocks(&e->vae->config, ITH_VAE_ENCODER);
    const bool waits = before && before->time && level->begin.slots > 1;
    const bool in_place = ith_vae_level_in_place(&e->vae->levels[index]);
    if (level->resample)
        level->end.rows = ith_min64(rows, level->height);
    if (waits)
        level->begin.rows = level->height;
    else if (in_place)
        level->begin.rows = level->end.rows;
    else
        level->begin.rows = ith_min64(level->averaged ? rows + 2 : given, level->height);
    if (in_place)
        level->end.rows = level->begin.rows;
}

/* Lays out the rows of level `index`. */
static void lay_out_level(ith_vae_encoder *e, int64_t index, ith_arena *arena)
{
    ith_vae_encoder_level *level = &e->levels[index];
    set_rows(e, index);
    if (!level->resample)
        level->end.x = e->work.middle.x.x;
    else
        ith_vae_rows_lay_out(&level->end, arena);
    level->begin.x = level->end.x;
    if (!ith_vae_level_in_place(&e->vae->levels[index]))
        ith_vae_rows_lay_out(&level->begin, arena);
}

/* Lays out the frames (ith_vae_work.lay_out_frames). work->temp holds, in turn, the arrays of the attention, and the
 * latents of a frame before and after quant_conv. Meanwhile only the rows in the middle are in use, so it shares its
 * place with the rows of all levels. */
static void lay_out_frames(void *owner, ith_arena *arena)
{
    ith_vae_encoder *e = owner;
    const ith_vae_middle *middle = &e->work.middle;
    const int64_t latents = middle->pixels * (e->vae->quant.in + e->vae->quant.out) * (int64_t)sizeof(float);
    ith_vae_rows_lay_out(&e->work.middle.x, arena);
    const int64_t begin = arena->used_bytes;
    e->work.temp = ith_arena_take(arena, 0, 1);
    ith_vae_rows_lay_out(&e->input, arena);
    if (e->vae->config.patch > 1)
        e->pixels = ith_arena_take(arena, e->input.rows * e->input.width * e->input.channels, sizeof(float));
    for (int64_t i = 0; i < e->vae->config.levels; i++)
        lay_out_level(e, i, arena);
    ith_arena_extend(arena, begin, ith_max64(ith_vae_attention_temp_bytes(&middle->attention), latents));
}

/* The bytes of an encoder with its convolutions: conv_in, conv_out, and two in each of the residual blocks around the
 * attention; in a level two for each residual block, and `resample` and `time`. */
static int64_t encoder_size(const ith_vae_config *config)
{
    int64_t convs = 6 + config->levels * (2 * ith_vae_level_blocks(config, ITH_VAE_ENCODER) + 2);
    return (int64_t)sizeof(ith_vae_encoder) + convs * (int64_t)sizeof(ith_vae_conv);
}

ith_status ith_vae_encoder_create(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                                  ith_vae_encoder **out)
{
    const int64_t bytes = encoder_size(&vae->config);
    ith_vae_encoder *e = ith_alloc_zero(context, 1, bytes, "an encoder");
    *out = e;
    if (!e)
        return ITH_ERR_MEMORY;
    e->vae = vae;
    ith_vae_work_begin(&e->work, context, vae, e->convs, lay_out_frames, e, bytes);
    add_layers(e, extent->height, extent->width);
    ith_status status = e->work.status;
    if (status)
        ith_vae_encoder_free(out);
    return status;
}

void ith_vae_encoder_free(ith_vae_encoder **encoder)
{
    if (!*encoder)
        return;
    ith_context *context = (*encoder)->work.context;
    ith_vae_work_close(&(*encoder)->work);
    ith_free(context, *encoder);
    *encoder = NULL;
}
