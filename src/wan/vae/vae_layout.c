/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's layers for one size of picture, and their memory.
 *
 * add_layers makes the list of layers, whose oneDNN objects determine how much memory they need. lay_out then lays out
 * all memory in one arena. It is called twice: first to count the bytes, which also serves the prediction, then to set
 * the pointers. The arena holds, in this order:
 *
 *   linear layers and their workspace | packed convolutions | ring buffers | frame buffers, scratch memory */
#include "../../base/size.h"
#include "vae_decoder.h"

#include <ithaca/wan.h>

#include <omp.h>
#include <string.h>

#define LINE_FLOATS 4096       /* the least numbers in a thread's buffer for normalised pixels */
#define CLEARED_TOGETHER 65536 /* bytes that a thread clears at a time */

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Adds the layers of a level (those at one picture size). pictures: the number of frames that one latent frame has
 * become before this level. Returns this number after the level. */
static int64_t add_level(ith_vae_decoder *d, int64_t index, int64_t height, int64_t width, int64_t pictures)
{
    const ith_vae_level *weights = &d->vae->levels[index];
    ith_vae_level_layers *level = &d->levels[index];
    *level = (ith_vae_level_layers){.height = height, .width = width, .in = weights->in, .out = weights->out};
    for (int64_t i = 0; i <= d->vae->config.res_blocks; i++) {
        ith_vae_conv *residual = ith_vae_residual_add(&d->work, &weights->residuals[i], height, width, pictures);
        level->residuals = i ? level->residuals : residual;
    }
    if (weights->time.in) {
        level->time = ith_vae_conv_add(&d->work, &weights->time, height, width, false, pictures);
        level->time->first_times = 0;
        pictures *= 2;
    }
    if (weights->resample.in)
        level->resample = ith_vae_conv_add(&d->work, &weights->resample, 2 * height, 2 * width, false, pictures);
    return pictures;
}

static void add_layers(ith_vae_decoder *d, int64_t height, int64_t width)
{
    const ith_vae *vae = d->vae;
    ith_vae_work *work = &d->work;
    int64_t pictures = 1, scale = 1;
    d->post_quant = ith_vae_linear_add(work, &vae->post_quant, d->pixels);
    d->in = ith_vae_conv_add(work, &vae->in, height, width, false, 1);
    d->before = ith_vae_residual_add(work, &vae->before, height, width, 1);
    ith_vae_attention_add(work, vae, d->pixels, &d->attention);
    d->after = ith_vae_residual_add(work, &vae->after, height, width, 1);
    for (int64_t i = 0; i < vae->config.levels; i++, scale *= 2)
        pictures = add_level(d, i, height * scale, width * scale, pictures);
    scale = vae->config.stride_space;
    d->out = ith_vae_conv_add(work, &vae->out, height * scale, width * scale, false, pictures);
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
                                  ith_vae_decoder **out)
{
    ith_vae_decoder *d = ith_alloc_zero(context, 1, decoder_size(&vae->config), "a decoder");
    *out = d;
    if (!d)
        return ITH_ERR_MEMORY;
    d->vae = vae, d->pixels = height * width;
    d->work.context = context, d->work.types = vae->types, d->work.convs = d->convs;
    d->work.rowops = ith_rowops_choose(ith_context_cpu(context));
    d->work.status = ith_linear_set_create(context, false, &d->work.linear_set);
    add_layers(d, height, width);
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
    for (int64_t i = 0; i < d->work.conv_count; i++)
        ith_conv_destroy(context, &d->convs[i].conv);
    ith_linear_set_destroy(&d->work.linear_set);
    ith_plan_destroy(&d->attention.plan);
    ith_free(context, d->memory);
    ith_free(context, d);
    *decoder = NULL;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Lays out the linear layers and one workspace, which they use in turn. The workspace has
 * room for as many rows as a latent frame has pixels, which is the number of rows of the widest layers. The layer of a
 * shortcut has more rows, which are narrower, and processes a part of them at a time. */
static void lay_out_linears(ith_vae_decoder *d, ith_arena *arena)
{
    ith_vae_work *work = &d->work;
    for (int64_t i = 0; i < work->linear_count; i++) {
        ith_vae_linear *l = &work->linears[i];
        l->linear = ith_linear_lay_out(work->linear_set, l->filter->in, l->filter->out, work->types, arena);
    }
    ith_linear_workspace_lay_out(work->linear_set, omp_get_max_threads(), d->pixels, arena, &work->linear_workspace);
}

/* Lays out buffers with room for one frame of any level, and the scratch memory of one layer. Only the buffer `doubled`
 * belongs to one level: its second frame must survive while the first passes through the later levels. work->temp
 * holds, in turn, the latents of a frame before and after post_quant_conv, the arrays of the attention, the hidden
 * frame of a residual block, and an enlarged frame. */
static void lay_out_buffers(ith_vae_decoder *d, ith_arena *arena)
{
    const ith_vae_config *config = &d->vae->config;
    ith_vae_work *work = &d->work;
    int64_t main = 0, side = 0, scratch = 0, operand = ith_dtype_bytes(work->types.multiplied);
    int64_t temp = ith_max64(ith_vae_attention_temp_bytes(&d->attention), 2 * d->pixels * config->z_dim * 4);
    work->line_floats = LINE_FLOATS;
    for (int64_t i = 0; i < config->levels; i++) {
        ith_vae_level_layers *l = &d->levels[i];
        int64_t pixels = l->height * l->width;
        main = ith_max64(main, pixels * l->in);
        side = l->in == l->out ? side : ith_max64(side, pixels * l->out);
        temp = ith_max64(temp, pixels * l->out * (l->resample ? ith_max64(4, 4 * operand) : 4));
        work->line_floats = ith_max64(work->line_floats, ith_max64(l->in, l->out));
        if (l->time)
            l->doubled = ith_arena_take(arena, pixels * 2 * l->out, sizeof(float));
    }
    for (int64_t i = 0; i < work->conv_count; i++)
        scratch = ith_max64(scratch, ith_conv_scratch_bytes(&work->convs[i].conv));
    work->main = ith_arena_take(arena, main, sizeof(float));
    work->side = ith_arena_take(arena, side, sizeof(float));
    work->temp = ith_arena_take(arena, temp, 1);
    work->lines = ith_arena_take(arena, omp_get_max_threads() * work->line_floats, sizeof(float));
    work->conv_scratch = ith_arena_take(arena, scratch, 1);
    d->frame = ith_arena_take(arena, d->pixels * config->stride_space * config->stride_space, 3 * sizeof(float));
}

/* Lays out all memory of a decoder. Weights are packed before any frame is decoded, so scratch memory for packing
 * shares its place with the buffers for frames. */
static void lay_out(ith_vae_decoder *d, ith_arena *arena)
{
    ith_vae_work *work = &d->work;
    lay_out_linears(d, arena);
    int64_t packing = 0;
    for (int64_t i = 0; i < work->conv_count; i++) {
        ith_conv_lay_out(&work->convs[i].conv, arena);
        packing = ith_max64(packing, ith_conv_weight_bytes(&work->convs[i].conv.shape));
    }
    const int64_t begin = arena->used_bytes;
    d->rings = ith_arena_take(arena, 0, 1);
    for (int64_t i = 0; i < work->conv_count; i++) {
        ith_vae_conv *c = &work->convs[i];
        if (c->filter->frames > 1)
            c->ring = ith_arena_take(arena, c->filter->frames, ith_conv_frame_bytes(&c->conv.shape));
    }
    d->ring_bytes = arena->used_bytes - begin;
    lay_out_buffers(d, arena);
    /* A convolution that reads one frame needs no ring buffer: its input lies in work->temp. */
    for (int64_t i = 0; i < work->conv_count; i++)
        if (work->convs[i].filter->frames == 1)
            work->convs[i].ring = work->temp;
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
             ith_linear_set_bytes(d->work.linear_set) + d->work.conv_count * ith_onednn_op_bytes();
    return status;
}

/* ---- Weights --------------------------------------------------------------------------------------------------- */

/* Shows the progress after a convolution's weights have been packed. If packing failed, adds the name of the weights to
 * the error message. */
static ith_status packed(const ith_vae_decoder *d, const ith_vae_filter *filter, ith_status status, int64_t *bytes)
{
    if (status)
        return ith_fail_in(d->work.context, status, "%s", filter->weight->name);
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
        const char *file = ith_store_file_of(d->vae->store, f->weight);
        const ith_linear_weight part = {f->weight->data, f->weight->dtype, f->out, file};
        status = ith_linear_attach(work->context, work->linears[i].linear, &part, 1, f->bias);
        status = packed(d, f, status, &bytes);
    }
    for (int64_t i = 0; i < work->conv_count && !status; i++) {
        const ith_vae_filter *f = work->convs[i].filter;
        status =
            ith_conv_pack(work->context, &work->convs[i].conv, f->weight->data, f->weight->dtype, f->bias, d->rings);
        status = packed(d, f, status, &bytes);
    }
    return status;
}

/* Fills the ring buffers of all convolutions with zeros, which stand for the frames before the first. All threads take
 * part, so that each page of memory is first touched by a thread that will use it. After an interruption nothing reads
 * these buffers. */
static void clear_rings(ith_vae_decoder *d)
{
#pragma omp parallel for schedule(static)
    for (int64_t begin = 0; begin < d->ring_bytes; begin += CLEARED_TOGETHER)
        if (!ith_context_interrupted(d->work.context))
            memset(d->rings + begin, 0, (size_t)ith_min64(CLEARED_TOGETHER, d->ring_bytes - begin));
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
    clear_rings(d);
    return status;
}
