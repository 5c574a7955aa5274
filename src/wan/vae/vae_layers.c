/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, residual blocks, and what happens to the numbers between them. */
#include "vae_layers.h"

#include "../../base/size.h"

#include <ithaca/wan.h>

#include <math.h>
#include <omp.h>
#include <string.h>

#define CHUNK_BYTES 65536 /* of a memory operation given to one thread */

/* ---- Numbers between layers ------------------------------------------------------------------------------------ */

void ith_vae_norm_silu(const ith_vae_work *work, void *operand, const float *x, const float *gamma, int64_t pixels,
                       int64_t channels)
{
    int64_t chunk = work->line_floats / channels;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < ith_div_up(pixels, chunk); i++) {
        int64_t begin = i * chunk * channels, count = ith_min64(chunk, pixels - i * chunk);
        char *to = (char *)operand + begin * ith_dtype_bytes(work->types.multiplied);
        float *normal = work->types.multiplied == ITH_F32 ? (float *)(void *)to
                                                          : work->lines + omp_get_thread_num() * work->line_floats;
        work->rowops->channel_norm(normal, x + begin, gamma, count, channels, true);
        ith_operand_round(&work->types, work->rowops, to, normal, count * channels);
    }
}

void ith_vae_operand(const ith_vae_work *work, void *operand, const float *x, int64_t count)
{
    int64_t chunk = CHUNK_BYTES / 4, bytes = ith_dtype_bytes(work->types.multiplied);
#pragma omp parallel for schedule(static)
    for (int64_t begin = 0; begin < count; begin += chunk)
        ith_operand_round(&work->types, work->rowops, (char *)operand + begin * bytes, x + begin,
                          ith_min64(chunk, count - begin));
}

void ith_vae_upsample(const ith_vae_work *work, void *operand, const float *x, int64_t stride, int64_t height,
                      int64_t width, int64_t channels)
{
    int64_t pixel_bytes = channels * ith_dtype_bytes(work->types.multiplied), row_bytes = 2 * width * pixel_bytes;
#pragma omp parallel for schedule(static)
    for (int64_t y = 0; y < height; y++) {
        char *row = (char *)operand + 2 * y * row_bytes;
        for (int64_t i = 0; i < width; i++) {
            char *pixel = row + 2 * i * pixel_bytes;
            ith_operand_round(&work->types, work->rowops, pixel, x + (y * width + i) * stride, channels);
            memcpy(pixel + pixel_bytes, pixel, (size_t)pixel_bytes);
        }
        memcpy(row + row_bytes, row, (size_t)row_bytes);
    }
}

/* ---- Convolutions ---------------------------------------------------------------------------------------------- */

ith_conv_shape ith_vae_conv_shape(const ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                                  bool adds)
{
    return (ith_conv_shape){.in = filter->in,
                            .out = filter->out,
                            .frames = filter->frames,
                            .kernel = filter->kernel,
                            .height = height,
                            .width = width,
                            .adds = adds,
                            .types = work->types};
}

/* Shows a filter's packing, or names it where that failed. */
static ith_status packed(ith_vae_work *work, const ith_vae_filter *filter, ith_status status)
{
    if (status)
        return ith_fail_in(work->context, status, "%s", filter->weight->name);
    work->packed_bytes += filter->weight->bytes;
    ith_observer_show(work->context, ITH_STAGE_LOAD, work->packed_bytes, work->weight_bytes);
    return ITH_OK;
}

ith_status ith_vae_conv_create(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               bool adds, ith_conv **out)
{
    ith_conv_shape shape = ith_vae_conv_shape(work, filter, height, width, adds);
    ith_status status =
        ith_conv_create(work->context, &shape, filter->weight->data, filter->weight->dtype, filter->bias, out);
    if (!status)
        work->conv_scratch_bytes = ith_max64(work->conv_scratch_bytes, ith_conv_scratch_bytes(*out));
    return packed(work, filter, status);
}

ith_status ith_vae_conv_run(ith_vae_work *work, ith_conv *conv, const ith_conv_shape *shape, const void *ring,
                            int64_t newest, float *dst)
{
    ith_status status = ith_conv_run(work->context, conv, ring, newest, dst, work->conv_scratch);
    if (status)
        return status;
    work->operations_done += ith_conv_operations(shape);
    double share = fmin(work->operations_done / work->operations, 1);
    int64_t done = work->shown.begin + (int64_t)(share * (double)(work->shown.end - work->shown.begin));
    if (work->shown.total)
        ith_observer_show(work->context, work->shown.stage, ith_min64(done, work->shown_most), work->shown.total);
    return ITH_OK;
}

ith_status ith_vae_linear_create(ith_vae_work *work, const ith_vae_filter *filter, ith_linear **out)
{
    ith_status status = ith_linear_create(work->context, filter->in, filter->out, filter->weight->data,
                                          filter->weight->dtype, filter->bias, work->types, out);
    return packed(work, filter, status);
}

/* By the team, whose threads will use it. What is left out of an interrupted run is never looked at. */
static void clear(const ith_context *context, char *memory, int64_t bytes)
{
#pragma omp parallel for schedule(static)
    for (int64_t begin = 0; begin < bytes; begin += CHUNK_BYTES)
        if (!ith_context_interrupted(context))
            memset(memory + begin, 0, (size_t)ith_min64(CHUNK_BYTES, bytes - begin));
}

ith_status ith_vae_causal_create(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                                 bool adds, ith_vae_causal *out)
{
    out->shape = ith_vae_conv_shape(work, filter, height, width, adds);
    ith_status status = ith_vae_conv_create(work, filter, height, width, adds, &out->conv);
    if (status)
        return status;
    int64_t frame_bytes = ith_conv_frame_bytes(&out->shape);
    out->ring = ith_alloc(work->context, filter->frames, frame_bytes, "frames that a convolution remembers");
    if (!out->ring)
        return ITH_ERR_MEMORY;
    clear(work->context, out->ring, filter->frames * frame_bytes);
    return ITH_OK;
}

void ith_vae_causal_free(ith_vae_work *work, ith_vae_causal *causal)
{
    ith_conv_destroy(work->context, &causal->conv);
    ith_free(work->context, causal->ring);
    causal->ring = NULL;
}

void *ith_vae_causal_next(ith_vae_causal *causal)
{
    causal->newest = (causal->newest + 1) % causal->shape.frames;
    return causal->ring + causal->newest * ith_conv_frame_bytes(&causal->shape);
}

ith_status ith_vae_causal_run(ith_vae_work *work, ith_vae_causal *causal, float *dst)
{
    return ith_vae_conv_run(work, causal->conv, &causal->shape, causal->ring, causal->newest, dst);
}

/* ---- Residual blocks ------------------------------------------------------------------------------------------- */

ith_status ith_vae_residual_create(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   ith_vae_residual_layer *out)
{
    out->weights = weights;
    ith_status status = ith_vae_causal_create(work, &weights->conv1, height, width, false, &out->conv1);
    if (!status)
        status = ith_vae_causal_create(work, &weights->conv2, height, width, true, &out->conv2);
    if (!status && weights->shortcut.weight)
        status = ith_vae_linear_create(work, &weights->shortcut, &out->shortcut);
    return status;
}

void ith_vae_residual_free(ith_vae_work *work, ith_vae_residual_layer *layer)
{
    ith_vae_causal_free(work, &layer->conv1);
    ith_vae_causal_free(work, &layer->conv2);
    ith_linear_destroy(work->context, &layer->shortcut);
}

ith_status ith_vae_residual_run(ith_vae_work *work, ith_vae_residual_layer *layer)
{
    const ith_conv_shape *shape = &layer->conv1.shape;
    int64_t pixels = shape->height * shape->width;
    float *h = (float *)(void *)work->temp;
    ith_vae_norm_silu(work, ith_vae_causal_next(&layer->conv1), work->x, layer->weights->norm1, pixels, shape->in);
    ith_status status = ith_vae_causal_run(work, &layer->conv1, h);
    if (!status && layer->shortcut) {
        float *to = work->x == work->main ? work->side : work->main;
        status = ith_linear_run(work->context, layer->shortcut, pixels, work->x, shape->in, to, shape->out);
        work->x = to;
    }
    if (status)
        return status;
    ith_vae_norm_silu(work, ith_vae_causal_next(&layer->conv2), h, layer->weights->norm2, pixels, shape->out);
    return ith_vae_causal_run(work, &layer->conv2, work->x);
}
