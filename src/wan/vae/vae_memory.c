/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the layers of the encoder or the decoder.
 *
 * When all layers have been added, lay_out lays out all memory in one arena. It is called twice: first to count the
 * bytes, which also serves the prediction, then to set the pointers. The arena holds, in this order:
 *
 *   linear layers and their workspace | packed convolutions | rows of convolutions | frames, scratch memory */
#include "vae_memory.h"

#include "../../base/size.h"

#include <ithaca/wan.h>

#include <omp.h>

#define MOST_LATENT_SIDE 16384
#define LINE_FLOATS 4096 /* the least numbers in a thread's buffer for normalised pixels */
#define LINEAR_ROWS 1536 /* the most rows for which the linear layers have memory; they take more in several strips */

const char *ith_vae_level_name(int64_t level)
{
    static const char *const names[ITH_VAE_MOST_LEVELS] = {"level 1", "level 2", "level 3", "level 4",
                                                           "level 5", "level 6", "level 7", "level 8"};
    return names[level];
}

ith_status ith_vae_check_size(ith_context *context, const ith_vae_extent *extent, const char *done)
{
    const int64_t frames = extent->frames, height = extent->height, width = extent->width;
    if (frames < 1 || height < 1 || width < 1 || height > MOST_LATENT_SIDE || width > MOST_LATENT_SIDE)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "latents of %lld frames of %lld x %lld cannot be %s; sides must be from 1 to %d",
                        (long long)frames, (long long)height, (long long)width, done, MOST_LATENT_SIDE);
    return ITH_OK;
}

void ith_vae_work_begin(ith_vae_work *work, ith_context *context, const ith_vae *vae, ith_vae_conv *convs,
                        void (*lay_out_frames)(void *owner, ith_arena *arena), void *owner, int64_t owner_bytes)
{
    *work = (ith_vae_work){.context = context,
                           .vae = vae,
                           .rowops = ith_rowops_choose(ith_context_cpu(context)),
                           .types = vae->types,
                           .convs = convs,
                           .lay_out_frames = lay_out_frames,
                           .owner = owner,
                           .owner_bytes = owner_bytes};
    work->status = ith_linear_set_create(context, ITH_LINEAR_KEEP_NONE, &work->linear_set);
}

void ith_vae_work_close(ith_vae_work *work)
{
    ith_linear_set_destroy(&work->linear_set);
    ith_plan_destroy(&work->middle.attention.plan);
    ith_free(work->context, work->memory);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

void ith_vae_rows_lay_out(ith_vae_rows *rows, ith_arena *arena)
{
    rows->x = ith_arena_take(arena, rows->slots * rows->rows * rows->width * rows->channels, sizeof(float));
}

/* Lays out the linear layers and the workspace that they share. Every layer is applied to a strip of rows at a time, so
 * a layer with more rows than a latent frame has pixels, such as a shortcut, needs no more memory. */
static void lay_out_linears(ith_vae_work *work, ith_arena *arena)
{
    for (int64_t i = 0; i < work->linear_count; i++) {
        ith_vae_linear *l = &work->linears[i];
        l->linear = ith_linear_lay_out(work->linear_set, l->filter->in, l->filter->out, work->types, arena);
    }
    /* Longer strips save conversions of weights, which are few here. */
    const int64_t rows = ith_min64(work->middle.pixels, LINEAR_ROWS);
    ith_linear_workspace_lay_out(work->linear_set, omp_get_max_threads(), rows, arena, &work->linear_workspace);
}

/* Lays out the frames and the scratch memory of one layer. */
static void lay_out_buffers(ith_vae_work *work, ith_arena *arena)
{
    const int threads = omp_get_max_threads();
    int64_t scratch = 0;
    work->lay_out_frames(work->owner, arena);
    work->line_floats = LINE_FLOATS;
    for (int64_t i = 0; i < work->conv_count; i++) {
        scratch = ith_max64(scratch, ith_conv_scratch_bytes(&work->convs[i].conv, threads));
        work->line_floats = ith_max64(work->line_floats, work->convs[i].filter->in);
    }
    work->lines = ith_arena_take(arena, threads * work->line_floats, sizeof(float));
    work->conv_scratch = ith_arena_take(arena, scratch, 1);
}

/* Lays out all memory. Weights are packed before any frame is computed, so scratch memory for packing shares its place
 * with the rows of convolutions and the buffers. */
static void lay_out(ith_vae_work *work, ith_arena *arena)
{
    lay_out_linears(work, arena);
    int64_t packing = 0;
    for (int64_t i = 0; i < work->conv_count; i++) {
        ith_conv_lay_out_weights(&work->convs[i].conv, arena);
        packing = ith_max64(packing, ith_conv_packing_bytes(&work->convs[i].conv, omp_get_max_threads()));
    }
    const int64_t begin = arena->used_bytes;
    work->rows = ith_arena_take(arena, 0, 1);
    for (int64_t i = 0; i < work->conv_count; i++)
        ith_conv_lay_out_rows(&work->convs[i].conv, arena);
    lay_out_buffers(work, arena);
    ith_arena_extend(arena, begin, packing);
}

ith_status ith_vae_work_bytes(ith_vae_work *work, int64_t *bytes)
{
    ith_arena arena = {0};
    int64_t plan = 0;
    lay_out(work, &arena);
    ith_status status = ith_linear_set_status(work->linear_set);
    if (!status)
        status = ith_vae_attention_plan_bytes(work, &work->middle.attention, &plan);
    *bytes =
        work->owner_bytes + arena.used_bytes + 2 * ITH_ALLOC_HEADER + plan + ith_linear_set_bytes(work->linear_set);
    return status;
}

/* ---- Weights --------------------------------------------------------------------------------------------------- */

/* Shows the progress after a convolution's weights have been packed. If packing failed, adds the names of the file and
 * of the weights to the error message. */
static ith_status show_packed(const ith_vae_work *work, const ith_vae_filter *filter, ith_status status, int64_t *bytes)
{
    if (status)
        return ith_fail_in(work->context, status, "%s: %s", ith_store_file_of(work->vae->memory.store, filter->weight),
                           filter->weight->name);
    *bytes += filter->weight->bytes;
    ith_observer_show(work->context, ITH_STAGE_LOAD, *bytes, work->vae->weight_bytes);
    return ITH_OK;
}

static ith_status pack(ith_vae_work *work)
{
    int64_t bytes = 0;
    ith_status status = ITH_OK;
    ith_observer_show(work->context, ITH_STAGE_LOAD, 0, work->vae->weight_bytes);
    for (int64_t i = 0; i < work->linear_count && !status; i++) {
        const ith_vae_filter *f = work->linears[i].filter;
        const char *file = ith_store_file_of(work->vae->memory.store, f->weight);
        const ith_linear_weight part = {
            .data = f->weight->data, .type = f->weight->dtype, .rows = f->out, .file = file};
        status = ith_linear_attach(work->context, work->linears[i].linear, &part, 1, f->bias);
        status = show_packed(work, f, status, &bytes);
    }
    for (int64_t i = 0; i < work->conv_count && !status; i++) {
        const ith_vae_filter *f = work->convs[i].filter;
        status =
            ith_conv_pack(work->context, &work->convs[i].conv, f->weight->data, f->weight->dtype, f->bias, work->rows);
        status = show_packed(work, f, status, &bytes);
    }
    return status;
}

ith_status ith_vae_work_open(ith_vae_work *work)
{
    ith_arena arena = {0};
    lay_out(work, &arena);
    ith_status status = ith_linear_set_status(work->linear_set);
    if (!status)
        status = ith_arena_allocate(work->context, &arena, "the layers of the autoencoder");
    if (status)
        return status;
    work->memory = arena.base;
    lay_out(work, &arena);
    status = pack(work);
    if (!status)
        status = ith_vae_attention_plan(work, &work->middle.attention);
    for (int64_t i = 0; i < work->conv_count && !status; i++)
        ith_conv_clear(work->context, &work->convs[i].conv);
    return status;
}
