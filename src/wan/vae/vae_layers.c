/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, residual blocks, and the operations on pixels between them.
 *
 * The input of a convolution is x after the norm and silu that come before the convolution, if any, in the number type
 * to which activations are rounded. It is written straight into the rows that the convolution keeps. Rows pass through
 * the two convolutions of a residual block in strips, so the frame between the two never exists as a whole. */
#include "vae_layers.h"

#include "../../base/size.h"
#include "../../base/trace.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define PIXELS_TOGETHER 64 /* pixels of a row that one thread normalises at a time */
#define STRIP_PIXELS 512   /* the least pixels of a strip for each thread: a block of a convolution */
#define LEAST_PIXELS 2048  /* the least pixels of a strip */

/* ---- Adding layers --------------------------------------------------------------------------------------------- */

int64_t ith_vae_strip(int64_t height, int64_t width)
{
    int64_t pixels = ith_max64((int64_t)STRIP_PIXELS * omp_get_max_threads(), LEAST_PIXELS);
    int64_t rows = ith_div_up(pixels, width);
    return ith_min64(ith_round_up(rows, 2), height);
}

/* work->convs has room for all convolutions, so pointers to them stay valid. */
ith_vae_conv *ith_vae_conv_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               int64_t strip, int64_t times)
{
    ith_vae_conv *conv = &work->convs[work->conv_count++];
    const ith_conv_shape shape = {.in = filter->in,
                                  .out = filter->out,
                                  .frames = filter->frames,
                                  .kernel = filter->kernel,
                                  .height = height,
                                  .width = width,
                                  .strip = strip,
                                  .types = work->types};
    conv->filter = filter, conv->stage = work->stage, conv->first_times = 1, conv->times = times;
    if (!work->status)
        work->status = ith_conv_create(work->context, &shape, &conv->conv);
    return conv;
}

ith_vae_linear *ith_vae_linear_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t pixels)
{
    ith_vae_linear *layer = &work->linears[work->linear_count++];
    layer->filter = filter, layer->stage = work->stage, layer->pixels = pixels;
    return layer;
}

/* The output of the first convolution lags at most two rows behind its input, and catches up in the last strip. So the
 * second convolution may get two rows more than a strip at once. */
ith_vae_conv *ith_vae_residual_add(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   int64_t times)
{
    const int64_t strip = ith_vae_strip(height, width);
    ith_vae_conv *first = ith_vae_conv_add(work, &weights->conv1, height, width, strip, times);
    ith_vae_conv *second = ith_vae_conv_add(work, &weights->conv2, height, width, strip + 2, times);
    first->norm = weights->norm1, second->norm = weights->norm2;
    if (weights->shortcut.in)
        first->shortcut = ith_vae_linear_add(work, &weights->shortcut, height * width);
    return first;
}

/* ---- Input ----------------------------------------------------------------------------------------------------- */

/* Where pixel `column` of row `row` of a convolution's input lies. */
static char *input_at(const ith_vae_conv *conv, int64_t row, int64_t column)
{
    return (char *)ith_conv_row(&conv->conv, row) +
           column * conv->conv.shape.in * ith_dtype_bytes(ith_conv_row_type(&conv->conv));
}

void ith_vae_conv_convert(const ith_vae_work *work, const ith_vae_conv *conv, void *to, const void *x, ith_dtype type,
                          int64_t count)
{
    const ith_dtype wanted = ith_conv_row_type(&conv->conv);
    if (wanted != type)
        work->rowops->bf16_from_f32(to, x, count);
    else if (to != x)
        memcpy(to, x, (size_t)(count * ith_dtype_bytes(type)));
}

/* A few pixels at a time are normalised in f32: in place if the input is f32, otherwise in the thread's part of
 * work->lines. */
void ith_vae_conv_put(const ith_vae_work *work, const ith_vae_conv *conv, int64_t row, int64_t first, int64_t count,
                      const float *x)
{
    const int64_t channels = conv->conv.shape.in, most = work->line_floats / channels;
    float *line = work->lines + omp_get_thread_num() * work->line_floats;
    for (int64_t i = 0; i < count; i += most) {
        const int64_t pixels = ith_min64(most, count - i);
        const float *from = x + i * channels;
        char *to = input_at(conv, row, first + i);
        if (conv->norm) {
            float *normal = ith_conv_row_type(&conv->conv) == ITH_F32 ? (float *)(void *)to : line;
            work->rowops->channel_norm(normal, from, conv->norm, pixels, channels, true);
            from = normal;
        }
        ith_vae_conv_convert(work, conv, to, from, ITH_F32, pixels * channels);
    }
}

void ith_vae_conv_put_doubled(const ith_vae_work *work, const ith_vae_conv *conv, int64_t row, int64_t column,
                              const void *x, ith_dtype type)
{
    const int64_t channels = conv->conv.shape.in, bytes = channels * ith_dtype_bytes(ith_conv_row_type(&conv->conv));
    char *upper = input_at(conv, 2 * row, 2 * column), *lower = input_at(conv, 2 * row + 1, 2 * column);
    ith_vae_conv_convert(work, conv, upper, x, type, channels);
    memcpy(upper + bytes, upper, (size_t)bytes);
    memcpy(lower, upper, (size_t)(2 * bytes));
}

void ith_vae_conv_put_rows(const ith_vae_work *work, const ith_vae_conv *conv, const float *x, int64_t begin,
                           int64_t end)
{
    const int64_t width = conv->conv.shape.width, channels = conv->conv.shape.in;
    double traced = ith_trace_begin(work->context);
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t row = begin; row < end; row++)
        for (int64_t first = 0; first < width; first += PIXELS_TOGETHER)
            ith_vae_conv_put(work, conv, row, first, ith_min64(PIXELS_TOGETHER, width - first),
                             x + (row * width + first) * channels);
    ith_trace_end(work->context, traced, ITH_VAE_NORMS, "compute");
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* Progress is measured in operations of whole convolutions. It is at most shown_most, so that a frame is not shown as
 * complete before the caller has it. */
static void show_progress(ith_vae_work *work, const ith_vae_conv *conv)
{
    work->operations_done += ith_conv_operations(&conv->conv.shape);
    double share = fmin(work->operations_done / work->operations, 1);
    int64_t done = work->shown.begin + (int64_t)(share * (double)(work->shown.end - work->shown.begin));
    ith_observer_show(work->context, work->shown.stage, ith_min64(done, work->shown_most), work->shown.total);
}

ith_status ith_vae_conv_advance(ith_vae_work *work, ith_vae_conv *conv, int64_t taken, const ith_conv_output *output)
{
    double traced = ith_trace_begin(work->context);
    ith_status status = ith_conv_advance(work->context, &conv->conv, taken, output, work->conv_scratch);
    ith_trace_end(work->context, traced, conv->stage, "compute");
    if (!status && taken == conv->conv.shape.height)
        show_progress(work, conv);
    return status;
}

ith_status ith_vae_conv_apply(ith_vae_work *work, ith_vae_conv *conv, const float *x, const ith_conv_output *output)
{
    const ith_conv_shape *shape = &conv->conv.shape;
    ith_status status = ITH_OK;
    ith_conv_begin(&conv->conv);
    for (int64_t begin = 0; begin < shape->height && !status; begin += shape->strip) {
        int64_t end = ith_min64(begin + shape->strip, shape->height);
        ith_vae_conv_put_rows(work, conv, x, begin, end);
        status = ith_vae_conv_advance(work, conv, end, output);
    }
    return status;
}

void ith_vae_frame_store(void *user, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const ith_vae_frame *frame = user;
    memcpy(frame->x + (row * frame->width + first) * frame->channels, pixels,
           (size_t)(count * frame->channels) * sizeof *pixels);
}

ith_status ith_vae_linear_apply(const ith_vae_work *work, const ith_vae_linear *layer, const float *x, float *y)
{
    double traced = layer->stage ? ith_trace_begin(work->context) : -1;
    ith_status status =
        ith_linear_apply_rows(work->context, layer->linear, &work->linear_workspace, layer->pixels, x, y);
    ith_trace_end(work->context, traced, layer->stage, "compute");
    return status;
}

/* ---- Residual blocks ------------------------------------------------------------------------------------------- */

/* The second convolution of a residual block, and the frame to which it adds its result. */
typedef struct residual_end {
    const ith_vae_work *work;
    ith_vae_conv *conv;
    float *x;
} residual_end;

/* Rows of the first convolution become input of the second. */
static void put_hidden(void *user, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const residual_end *end = user;
    ith_vae_conv_put(end->work, end->conv, row, first, count, pixels);
}

static void add_pixels(void *user, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const residual_end *end = user;
    const ith_conv_shape *shape = &end->conv->conv.shape;
    end->work->rowops->add_gated(end->x + (row * shape->width + first) * shape->out, pixels, NULL, count * shape->out);
}

/* The first convolution keeps the rows of x that it still needs, so the second may add its result to x in place. */
ith_status ith_vae_residual_apply(ith_vae_work *work, ith_vae_conv *convs, float *to)
{
    const ith_conv_shape *shape = &convs[0].conv.shape;
    residual_end last = {work, &convs[1], convs[0].shortcut ? to : work->x};
    const ith_conv_output hidden = {put_hidden, &last}, sum = {add_pixels, &last};
    ith_status status = ITH_OK;
    if (convs[0].shortcut)
        status = ith_vae_linear_apply(work, convs[0].shortcut, work->x, to);
    ith_conv_begin(&convs[0].conv);
    ith_conv_begin(&convs[1].conv);
    for (int64_t begin = 0; begin < shape->height && !status; begin += shape->strip) {
        int64_t end = ith_min64(begin + shape->strip, shape->height);
        ith_vae_conv_put_rows(work, &convs[0], work->x, begin, end);
        status = ith_vae_conv_advance(work, &convs[0], end, &hidden);
        if (!status)
            status = ith_vae_conv_advance(work, &convs[1], convs[0].conv.made, &sum);
    }
    work->x = last.x;
    return status;
}
