/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's layers for one size of picture, and their memory.
 *
 * add_layers makes the list of layers. lay_out then lays out all memory in one arena. It is called twice: first to
 * count the bytes, which also serves the prediction, then to set the pointers. The arena holds, in this order:
 *
 *   linear layers and their workspace | packed convolutions | rows of convolutions | frames, scratch memory */
#include "../../base/size.h"
#include "vae_decoder.h"

#include <ithaca/wan.h>

#include <omp.h>

#define LINE_FLOATS 4096 /* the least numbers in a thread's buffer for normalised pixels */

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Names of the levels in the trace. */
static const char *const level_names[ITH_VAE_MOST_LEVELS] = {"level 1", "level 2", "level 3", "level 4",
                                                             "level 5", "level 6", "level 7", "level 8"};

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
    const int64_t last = config->levels - 1, convs = 2 * (config->res_blocks + 1), scale = config->stride_space;
    ith_vae_span wanted = {band->begin * scale, band->end * scale}, needed = widen(wanted, 1, height << last);
    for (int64_t i = last; i >= 0; i--) {
        ith_vae_level_layers *level = &d->levels[i];
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

/* Adds the layers of a level (those at one picture size). pictures: the number of frames that one latent frame has
 * become before this level. Returns this number after the level. */
static int64_t add_level(ith_vae_decoder *d, int64_t index, int64_t width, int64_t pictures)
{
    const ith_vae_level *weights = &d->vae->levels[index];
    ith_vae_level_layers *level = &d->levels[index];
    const int64_t height = level->rows.end - level->rows.begin, read = level->read.end - level->read.begin;
    d->work.stage = level_names[index];
    level->height = height, level->width = width, level->in = weights->in, level->out = weights->out;
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
    if (weights->resample.in)
        level->resample =
            ith_vae_conv_add(&d->work, &weights->resample, 2 * read, 2 * width, 2 * strip, pictures, pictures > 1);
    return pictures;
}

static void add_layers(ith_vae_decoder *d, int64_t height, int64_t width, const ith_vae_span *band)
{
    const ith_vae *vae = d->vae;
    ith_vae_work *work = &d->work;
    int64_t pictures = 1, scale = 1;
    choose_rows(d, height, band);
    d->latent = (ith_vae_rows){NULL, 1, height, width, vae->levels[0].in, 0};
    work->stage = "latents";
    d->post_quant = ith_vae_linear_add(work, &vae->post_quant, d->pixels);
    d->in = ith_vae_conv_add(work, &vae->in, height, width, ith_vae_strip(height, width), 1, false);
    d->before = ith_vae_residual_add(work, &vae->before, height, width, 1);
    work->stage = NULL;
    ith_vae_attention_add(work, vae, d->pixels, &d->attention);
    work->stage = "latents";
    d->after = ith_vae_residual_add(work, &vae->after, height, width, 1);
    for (int64_t i = 0; i < vae->config.levels; i++, scale *= 2)
        pictures = add_level(d, i, width * scale, pictures);
    const ith_vae_level_layers *last = &d->levels[vae->config.levels - 1];
    work->stage = "picture";
    d->out = ith_vae_conv_add(work, &vae->out, last->height, last->width, ith_vae_strip(last->height, last->width),
                              pictures, pictures > 1);
    d->out->norm = vae->norm_out;
}

/* The bytes of a decoder with its convolutions: conv_in, conv_out, and two in each of the residual blocks around the
 * attention; in a level two for each residual block, and `time` and `resample`. */
static int64_t decoder_size(const ith_vae_config *config)
{
    int64_t convs = 6 + config->levels * (2 * (config->res_blocks + 1) + 2);
    return (int64_t)sizeof(ith_vae_decoder) + convs * (int64_t)sizeof(ith_vae_conv);
}

ith_status ith_vae_decoder_create(ith_context *context, const ith_vae *vae, int64_t height, int64_t width,
                                  const ith_vae_span *band, ith_vae_decoder **out)
{
    const ith_vae_span all = {0, height};
    ith_vae_decoder *d = ith_alloc_zero(context, 1, decoder_size(&vae->config), "a decoder");
    *out = d;
    if (!d)
        return ITH_ERR_MEMORY;
    d->vae = vae, d->pixels = height * width;
    d->work.context = context, d->work.types = vae->types, d->work.convs = d->convs;
    d->work.rowops = ith_rowops_choose(ith_context_cpu(context));
    d->work.status = ith_linear_set_create(context, false, &d->work.linear_set);
    add_layers(d, height, width, band ? band : &all);
    ith_status status = d->work.status;
    if (status)
        ith_vae_decoder_free(out);
    return status;
}

void ith_vae_decoder_free(ith_vae_decoder **decoder)
{
    if (!*decoder)
        return;
    ith_vae_decoder *d = *decoder;
    ith_context *context = d->work.context;
    ith_linear_set_destroy(&d->work.linear_set);
    ith_plan_destroy(&d->attention.plan);
    ith_free(context, d->memory);
    ith_free(context, d);
    *decoder = NULL;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Lays out the linear layers and the workspace that they share. Every layer is applied to a strip of rows at a time, so
 * a layer with more rows than a latent frame has pixels, such as a shortcut, needs no more memory. */
static void lay_out_linears(ith_vae_decoder *d, ith_arena *arena)
{
    ith_vae_work *work = &d->work;
    for (int64_t i = 0; i < work->linear_count; i++) {
        ith_vae_linear *l = &work->linears[i];
        l->linear = ith_linear_lay_out(work->linear_set, l->filter->in, l->filter->out, work->types, arena);
    }
    ith_linear_workspace_lay_out(work->linear_set, omp_get_max_threads(), d->pixels, arena, &work->linear_workspace);
}

/* Sets the number of rows for which a level has memory, before and after its residual blocks. `resample` of the level
 * before hands on at most its strip and two rows at a time; each convolution of the residual blocks lags at most two
 * rows behind its input. Whole frames are needed at the first level, which follows the attention, and where the frames
 * of a pair are doubled one after the other. */
static void set_rows(ith_vae_decoder *d, int64_t index)
{
    ith_vae_level_layers *level = &d->levels[index];
    if (index == 0)
        return;
    const int64_t given = d->levels[index - 1].resample->conv.shape.strip + 2;
    const int64_t rows = given + 4 * (d->vae->config.res_blocks + 1);
    if (!level->time || level->end.slots == 1)
        level->end.rows = ith_min64(rows, level->height);
    level->begin.rows = level->in == level->out ? level->end.rows : ith_min64(given, level->height);
}

static void take_rows(ith_vae_rows *rows, ith_arena *arena)
{
    rows->x = ith_arena_take(arena, rows->slots * rows->rows * rows->width * rows->channels, sizeof(float));
}

/* Lays out the rows of level `index`. The first level begins with a part of d->latent. */
static void lay_out_level(ith_vae_decoder *d, int64_t index, ith_arena *arena)
{
    ith_vae_level_layers *level = &d->levels[index];
    set_rows(d, index);
    if (index == 0) {
        take_rows(&d->latent, arena);
        level->begin.x = d->latent.x ? ith_vae_row(&d->latent, 0, level->rows.begin) : NULL;
    } else {
        take_rows(&level->begin, arena);
    }
    level->end.x = level->begin.x;
    if (level->in != level->out)
        take_rows(&level->end, arena);
}

/* Lays out the rows of the levels and work->temp. work->temp holds, in turn, the latents of a frame before and after
 * post_quant_conv, and the arrays of the attention. It is not in use when the second level is, and shares its place
 * with the rows of the second and later levels. */
static void lay_out_frames(ith_vae_decoder *d, ith_arena *arena)
{
    const ith_vae_config *config = &d->vae->config;
    lay_out_level(d, 0, arena);
    const int64_t begin = arena->used_bytes;
    d->work.temp = ith_arena_take(arena, 0, 1);
    for (int64_t i = 1; i < config->levels; i++)
        lay_out_level(d, i, arena);
    int64_t temp =
        ith_max64(ith_vae_attention_temp_bytes(&d->attention), 2 * d->pixels * config->z_dim * (int64_t)sizeof(float));
    ith_arena_take(arena, ith_max64(temp - (arena->used_bytes - begin), 0), 1);
}

/* Lays out the frames and the scratch memory of one layer. */
static void lay_out_buffers(ith_vae_decoder *d, ith_arena *arena)
{
    ith_vae_work *work = &d->work;
    const int threads = omp_get_max_threads();
    int64_t scratch = 0;
    lay_out_frames(d, arena);
    work->line_floats = LINE_FLOATS;
    for (int64_t i = 0; i < work->conv_count; i++) {
        scratch = ith_max64(scratch, ith_conv_scratch_bytes(&work->convs[i].conv, threads));
        work->line_floats = ith_max64(work->line_floats, work->convs[i].filter->in);
    }
    work->lines = ith_arena_take(arena, threads * work->line_floats, sizeof(float));
    work->conv_scratch = ith_arena_take(arena, scratch, 1);
    d->frames = ith_arena_take(arena, d->out->conv.slots * (d->wanted.end - d->wanted.begin) * d->out->conv.shape.width,
                               3 * sizeof(float));
}

/* Lays out all memory of a decoder. Weights are packed before any frame is decoded, so scratch memory for packing
 * shares its place with the rows of convolutions and the buffers. */
static void lay_out(ith_vae_decoder *d, ith_arena *arena)
{
    ith_vae_work *work = &d->work;
    lay_out_linears(d, arena);
    int64_t packing = 0;
    for (int64_t i = 0; i < work->conv_count; i++) {
        ith_conv_lay_out_weights(&work->convs[i].conv, arena);
        packing = ith_max64(packing, ith_conv_packing_bytes(&work->convs[i].conv, omp_get_max_threads()));
    }
    const int64_t begin = arena->used_bytes;
    d->rows = ith_arena_take(arena, 0, 1);
    for (int64_t i = 0; i < work->conv_count; i++)
        ith_conv_lay_out_rows(&work->convs[i].conv, arena);
    lay_out_buffers(d, arena);
    ith_arena_take(arena, ith_max64(packing - (arena->used_bytes - begin), 0), 1);
}

ith_status ith_vae_decoder_bytes(ith_vae_decoder *d, int64_t *bytes)
{
    ith_arena arena = {0};
    int64_t plan = 0;
    lay_out(d, &arena);
    ith_status status = ith_linear_set_status(d->work.linear_set);
    if (!status)
        status = ith_vae_attention_plan_bytes(&d->work, &d->attention, &plan);
    *bytes = decoder_size(&d->vae->config) + arena.used_bytes + 2 * ITH_ALLOC_HEADER + plan +
             ith_linear_set_bytes(d->work.linear_set);
    return status;
}

/* ---- Weights --------------------------------------------------------------------------------------------------- */

/* Shows the progress after a convolution's weights have been packed. If packing failed, adds the names of the file and
 * of the weights to the error message. */
static ith_status packed(const ith_vae_decoder *d, const ith_vae_filter *filter, ith_status status, int64_t *bytes)
{
    if (status)
        return ith_fail_in(d->work.context, status, "%s: %s", ith_store_file_of(d->vae->memory.store, filter->weight),
                           filter->weight->name);
    *bytes += filter->weight->bytes;
    ith_observer_show(d->work.context, ITH_STAGE_LOAD, *bytes, d->vae->weight_bytes);
    return ITH_OK;
}

static ith_status pack(ith_vae_decoder *d)
{
    ith_vae_work *work = &d->work;
    int64_t bytes = 0;
    ith_status status = ITH_OK;
    ith_observer_show(work->context, ITH_STAGE_LOAD, 0, d->vae->weight_bytes);
    for (int64_t i = 0; i < work->linear_count && !status; i++) {
        const ith_vae_filter *f = work->linears[i].filter;
        const char *file = ith_store_file_of(d->vae->memory.store, f->weight);
        const ith_linear_weight part = {f->weight->data, f->weight->dtype, f->out, file};
        status = ith_linear_attach(work->context, work->linears[i].linear, &part, 1, f->bias);
        status = packed(d, f, status, &bytes);
    }
    for (int64_t i = 0; i < work->conv_count && !status; i++) {
        const ith_vae_filter *f = work->convs[i].filter;
        status =
            ith_conv_pack(work->context, &work->convs[i].conv, f->weight->data, f->weight->dtype, f->bias, d->rows);
        status = packed(d, f, status, &bytes);
    }
    return status;
}

ith_status ith_vae_decoder_open(ith_vae_decoder *d)
{
    ith_vae_work *work = &d->work;
    ith_arena arena = {0};
    lay_out(d, &arena);
    ith_status status = ith_linear_set_status(work->linear_set);
    if (!status)
        status = ith_arena_allocate(work->context, &arena, "a decoder");
    if (status)
        return status;
    d->memory = arena.base;
    lay_out(d, &arena);
    status = pack(d);
    if (!status)
        status = ith_vae_attention_plan(work, &d->attention);
    for (int64_t i = 0; i < work->conv_count && !status; i++)
        ith_conv_clear(work->context, &work->convs[i].conv);
    return status;
}
