/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, residual blocks, and the operations on pixels between them.
 *
 * A convolution reads an operand: x after the norm and silu that come before the convolution, if any, and in the number
 * type that is multiplied. The operand is written into the convolution's ring buffer, so no frame is copied. */
#include "vae_layers.h"

#include "../../base/size.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define CHUNK_FLOATS 16384 /* numbers that one thread rounds at a time */

/* ---- Adding layers --------------------------------------------------------------------------------------------- */

/* work->convs has room for all convolutions, so pointers to them stay valid. */
ith_vae_conv *ith_vae_conv_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               bool adds, int64_t times)
{
    ith_vae_conv *conv = &work->convs[work->conv_count++];
    const ith_conv_shape shape = {.in = filter->in,
                                  .out = filter->out,
                                  .frames = filter->frames,
                                  .kernel = filter->kernel,
                                  .height = height,
                                  .width = width,
                                  .adds = adds,
                                  .types = work->types};
    conv->filter = filter, conv->first_times = 1, conv->times = times;
    if (!work->status)
        work->status = ith_conv_create(work->context, &shape, &conv->conv);
    return conv;
}

ith_vae_linear *ith_vae_linear_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t pixels)
{
    ith_vae_linear *layer = &work->linears[work->linear_count++];
    layer->filter = filter, layer->pixels = pixels;
    return layer;
}

ith_vae_conv *ith_vae_residual_add(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   int64_t times)
{
    ith_vae_conv *first = ith_vae_conv_add(work, &weights->conv1, height, width, false, times);
    ith_vae_conv *second = ith_vae_conv_add(work, &weights->conv2, height, width, true, times);
    first->norm = weights->norm1, second->norm = weights->norm2;
    if (weights->shortcut.in)
        first->shortcut = ith_vae_linear_add(work, &weights->shortcut, height * width);
    return first;
}

/* ---- Frames into rings ----------------------------------------------------------------------------------------- */

/* Returns the memory of the oldest frame in the convolution's ring buffer. The caller writes the next frame there. */
static char *next_frame(ith_vae_conv *conv)
{
    conv->newest = (conv->newest + 1) % conv->filter->frames;
    return conv->ring + conv->newest * ith_conv_frame_bytes(&conv->conv.shape);
}

/* Writes silu(norm(x)) to `operand`, the input of a convolution. A few pixels at a time are normalised in f32: in place
 * if the operand is f32, otherwise in the thread's part of work->lines, from which they are rounded to the operand's
 * type. */
static void norm_silu(const ith_vae_work *work, char *operand, const float *x, const float *gamma, int64_t pixels,
                      int64_t channels)
{
    int64_t chunk = work->line_floats / channels, bytes = ith_dtype_bytes(work->types.multiplied);
    bool narrow = work->types.multiplied != ITH_F32;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < ith_div_up(pixels, chunk); i++) {
        int64_t begin = i * chunk * channels, count = ith_min64(chunk, pixels - i * chunk);
        char *to = operand + begin * bytes;
        float *normal = narrow ? work->lines + omp_get_thread_num() * work->line_floats : (float *)(void *)to;
        work->rowops->channel_norm(normal, x + begin, gamma, count, channels, true);
        ith_operand_round(&work->types, work->rowops, to, normal, count * channels);
    }
}

void ith_vae_conv_take(const ith_vae_work *work, ith_vae_conv *conv, const float *x)
{
    const ith_conv_shape *shape = &conv->conv.shape;
    int64_t pixels = shape->height * shape->width, count = pixels * shape->in;
    int64_t bytes = ith_dtype_bytes(work->types.multiplied);
    char *operand = next_frame(conv);
    if (conv->norm) {
        norm_silu(work, operand, x, conv->norm, pixels, shape->in);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t begin = 0; begin < count; begin += CHUNK_FLOATS)
        ith_operand_round(&work->types, work->rowops, operand + begin * bytes, x + begin,
                          ith_min64(CHUNK_FLOATS, count - begin));
}

/* Each pixel becomes a square of 2 x 2 equal pixels (nearest neighbour). */
void ith_vae_conv_take_doubled(const ith_vae_work *work, ith_vae_conv *conv, const float *x, int64_t stride)
{
    const ith_conv_shape *shape = &conv->conv.shape;
    int64_t height = shape->height / 2, width = shape->width / 2;
    int64_t pixel_bytes = shape->in * ith_dtype_bytes(work->types.multiplied), row_bytes = 2 * width * pixel_bytes;
    char *operand = next_frame(conv);
#pragma omp parallel for schedule(static)
    for (int64_t y = 0; y < height; y++) {
        char *row = operand + 2 * y * row_bytes;
        for (int64_t i = 0; i < width; i++) {
            char *pixel = row + 2 * i * pixel_bytes;
            ith_operand_round(&work->types, work->rowops, pixel, x + (y * width + i) * stride, shape->in);
            memcpy(pixel + pixel_bytes, pixel, (size_t)pixel_bytes);
        }
        memcpy(row + row_bytes, row, (size_t)row_bytes);
    }
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

ith_status ith_vae_conv_apply(ith_vae_work *work, ith_vae_conv *conv, float *dst)
{
    ith_status status = ith_conv_apply(work->context, &conv->conv, conv->ring, conv->newest, dst, work->conv_scratch);
    if (status)
        return status;
    /* Progress is measured in operations. It is at most shown_most, so that a frame is not shown as complete before the
     * caller has it. */
    work->operations_done += ith_conv_operations(&conv->conv.shape);
    double share = fmin(work->operations_done / work->operations, 1);
    int64_t done = work->shown.begin + (int64_t)(share * (double)(work->shown.end - work->shown.begin));
    ith_observer_show(work->context, work->shown.stage, ith_min64(done, work->shown_most), work->shown.total);
    return ITH_OK;
}

ith_status ith_vae_linear_apply(const ith_vae_work *work, const ith_vae_linear *layer, const float *x, float *y)
{
    return ith_linear_apply_rows(work->context, layer->linear, &work->linear_workspace, layer->pixels, x, y);
}

/* x = s + conv2(conv1(x)). The second convolution adds its result to work->x in place. If the block has a shortcut,
 * shortcut(x) first becomes the new work->x, in the other of the two frame buffers. */
ith_status ith_vae_residual_apply(ith_vae_work *work, ith_vae_conv *convs)
{
    float *h = (float *)(void *)work->temp;
    ith_vae_conv_take(work, &convs[0], work->x);
    ith_status status = ith_vae_conv_apply(work, &convs[0], h);
    if (!status && convs[0].shortcut) {
        float *to = work->x == work->main ? work->side : work->main;
        status = ith_vae_linear_apply(work, convs[0].shortcut, work->x, to);
        work->x = to;
    }
    if (status)
        return status;
    ith_vae_conv_take(work, &convs[1], h);
    return ith_vae_conv_apply(work, &convs[1], work->x);
}
