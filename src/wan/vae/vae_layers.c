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
#define PIECES_TOGETHER 4  /* pieces of PIXELS_TOGETHER pixels that a thread takes at once */
#define STRIP_PIXELS 512   /* the least pixels of a strip for each thread: a block of a convolution */
#define LEAST_PIXELS 2048  /* the least pixels of a strip */

void ith_vae_unnormalise(const ith_vae_config *config, const float *latents, int64_t frames, int64_t frame,
                         int64_t pixels, float *z)
{
    const int64_t channels = config->z_dim;
    for (int64_t c = 0; c < channels; c++) {
        const float *from = latents + (c * frames + frame) * pixels;
        for (int64_t i = 0; i < pixels; i++)
            z[i * channels + c] = from[i] * config->std[c] + config->mean[c];
    }
}

/* ---- Adding layers --------------------------------------------------------------------------------------------- */

int64_t ith_vae_strip(int64_t height, int64_t width)
{
    int64_t pixels = ith_max64((int64_t)STRIP_PIXELS * omp_get_max_threads(), LEAST_PIXELS);
    int64_t rows = ith_div_up(pixels, width);
    return ith_min64(ith_round_up(rows, 2), height);
}

/* work->convs has room for all convolutions, so pointers to them stay valid. */
ith_vae_conv *ith_vae_conv_add_shape(ith_vae_work *work, const ith_vae_filter *filter, ith_conv_shape shape,
                                     int64_t times)
{
    ith_vae_conv *conv = &work->convs[work->conv_count++];
    shape.in = filter->in, shape.out = filter->out, shape.frames = filter->frames, shape.kernel = filter->kernel;
    shape.types = work->types;
    conv->filter = filter, conv->stage = work->stage, conv->times = times;
    conv->first_times = shape.halves_time ? 0 : 1;
    if (!work->status)
        work->status = ith_conv_create(work->context, &shape, &conv->conv);
    return conv;
}

ith_vae_conv *ith_vae_conv_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               int64_t strip, int64_t times, bool pairs)
{
    const ith_conv_shape shape = {.height = height, .width = width, .strip = strip, .pairs = pairs};
    return ith_vae_conv_add_shape(work, filter, shape, times);
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
    ith_vae_conv *first = ith_vae_conv_add(work, &weights->conv1, height, width, strip, times, times > 1);
    ith_vae_conv *second = ith_vae_conv_add(work, &weights->conv2, height, width, strip + 2, times, times > 1);
    first->norm = weights->norm1, second->norm = weights->norm2;
    if (weights->shortcut.in)
        first->shortcut = ith_vae_linear_add(work, &weights->shortcut, height * width);
    return first;
}

/* ---- Input ----------------------------------------------------------------------------------------------------- */

/* Where pixel `column` of row `row` of a convolution's input lies. */
static char *input_at(const ith_vae_conv *conv, int64_t slot, int64_t row, int64_t column)
{
    return (char *)ith_conv_row(&conv->conv, slot, row) +
           column * conv->conv.shape.in * ith_dtype_bytes(ith_conv_row_type(&conv->conv));
}

/* Converts numbers to the type of a convolution's input. */
static void convert(const ith_vae_work *work, const ith_vae_conv *conv, void *to, const float *x, int64_t count)
{
    if (ith_conv_row_type(&conv->conv) != ITH_F32)
        work->rowops->bf16_from_f32(to, x, count);
    else if (to != x)
        memcpy(to, x, (size_t)count * sizeof *x);
}

/* A few pixels at a time are normalised in f32: in place if the input is f32, otherwise in the thread's part of
 * work->lines. */
void ith_vae_conv_put(const ith_vae_work *work, const ith_vae_conv *conv, int64_t slot, int64_t row, int64_t first,
                      int64_t count, const float *x)
{
    const int64_t channels = conv->conv.shape.in, most = work->line_floats / channels;
    float *line = work->lines + omp_get_thread_num() * work->line_floats;
    for (int64_t i = 0; i < count; i += most) {
        const int64_t pixels = ith_min64(most, count - i);
        const float *from = x + i * channels;
        char *to = input_at(conv, slot, row, first + i);
        if (conv->norm) {
            float *normal = ith_conv_row_type(&conv->conv) == ITH_F32 ? (float *)(void *)to : line;
            work->rowops->channel_norm(normal, from, conv->norm, pixels, channels, true);
            from = normal;
        }
        convert(work, conv, to, from, pixels * channels);
    }
}

void ith_vae_conv_put_doubled(const ith_vae_work *work, const ith_vae_conv *conv, int64_t slot, int64_t row,
                              int64_t column, const float *x)
{
    const int64_t channels = conv->conv.shape.in, bytes = channels * ith_dtype_bytes(ith_conv_row_type(&conv->conv));
    char *upper = input_at(conv, slot, 2 * row, 2 * column), *lower = input_at(conv, slot, 2 * row + 1, 2 * column);
    convert(work, conv, upper, x, channels);
    memcpy(upper + bytes, upper, (size_t)bytes);
    memcpy(lower, upper, (size_t)(2 * bytes));
}

/* Makes rows [begin, end) of x the input of a convolution. */
static void put_rows(const ith_vae_work *work, const ith_vae_conv *conv, const ith_vae_rows *x, int64_t begin,
                     int64_t end)
{
    const int64_t width = conv->conv.shape.width, channels = conv->conv.shape.in;
    double traced = ith_trace_begin(work->context);
#pragma omp parallel for collapse(3) schedule(dynamic, PIECES_TOGETHER)
    for (int64_t slot = conv->conv.first; slot < conv->conv.slots; slot++)
        for (int64_t row = begin; row < end; row++)
            for (int64_t first = 0; first < width; first += PIXELS_TOGETHER)
                ith_vae_conv_put(work, conv, slot, row, first, ith_min64(PIXELS_TOGETHER, width - first),
                                 ith_vae_row(x, slot, row) + first * channels);
    ith_trace_end(work->context, traced, ITH_VAE_NORMS, "compute");
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* Progress is measured in operations of whole convolutions. It is at most shown_most, so that a frame is not shown as
 * complete before the caller has it. */
static void show_progress(ith_vae_work *work, const ith_vae_conv *conv)
{
    work->operations_done += (double)ith_conv_out_frames(&conv->conv) * ith_conv_operations(&conv->conv.shape);
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

ith_status ith_vae_conv_feed(ith_vae_work *work, ith_vae_conv *conv, const ith_vae_rows *x, int64_t taken,
                             const ith_conv_output *output)
{
    ith_status status = ITH_OK;
    while (conv->conv.taken < taken && !status) {
        int64_t end = ith_min64(conv->conv.taken + conv->conv.shape.strip, taken);
        put_rows(work, conv, x, conv->conv.taken, end);
        status = ith_vae_conv_advance(work, conv, end, output);
    }
    return status;
}

void ith_vae_rows_store(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const ith_vae_rows *rows = user;
    memcpy(ith_vae_row(rows, slot, row) + first * rows->channels, pixels,
           (size_t)(count * rows->channels) * sizeof *pixels);
}

ith_status ith_vae_linear_apply(const ith_vae_work *work, const ith_vae_linear *layer, int64_t pixels, const float *x,
                                float *y)
{
    double traced = layer->stage ? ith_trace_begin(work->context) : -1;
    ith_status status = ith_linear_apply_rows(work->context, layer->linear, &work->linear_workspace, pixels, x, y);
    ith_trace_end(work->context, traced, layer->stage, "compute");
    return status;
}

/* ---- Residual blocks ------------------------------------------------------------------------------------------- */

/* The second convolution of a residual block, and the rows to which it adds its result: y = x + result, or y += result
 * if x is NULL. */
typedef struct residual_end {
    const ith_vae_work *work;
    ith_vae_conv *conv;
    const ith_vae_rows *x, *y;
} residual_end;

/* Rows of the first convolution become input of the second. */
static void put_hidden(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const residual_end *end = user;
    ith_vae_conv_put(end->work, end->conv, slot, row, first, count, pixels);
}

static void add_pixels(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    const residual_end *end = user;
    const int64_t channels = end->y->channels;
    float *y = ith_vae_row(end->y, slot, row) + first * channels;
    if (end->x)
        memcpy(y, ith_vae_row(end->x, slot, row) + first * channels, (size_t)(count * channels) * sizeof *y);
    end->work->rowops->add_gated(y, pixels, NULL, count * channels);
}

/* Computes y = shortcut(x) for rows [begin, end), as many at a time as are contiguous in both. */
static ith_status apply_shortcut(const ith_vae_work *work, const ith_vae_conv *conv, const ith_vae_rows *x,
                                 const ith_vae_rows *y, int64_t begin, int64_t end)
{
    ith_status status = ITH_OK;
    for (int64_t slot = conv->conv.first; slot < conv->conv.slots; slot++)
        for (int64_t row = begin, rows = 0; row < end && !status; row += rows) {
            rows = ith_min64(end - row, ith_min64(ith_vae_rows_together(x, row), ith_vae_rows_together(y, row)));
            status = ith_vae_linear_apply(work, conv->shortcut, rows * x->width, ith_vae_row(x, slot, row),
                                          ith_vae_row(y, slot, row));
        }
    return status;
}

void ith_vae_residual_begin(ith_vae_conv *convs)
{
    ith_conv_begin(&convs[0].conv);
    ith_conv_begin(&convs[1].conv);
}

/* The first convolution keeps the rows of x that it still needs, so the second may add its result to x in place. */
ith_status ith_vae_residual_feed(ith_vae_work *work, ith_vae_conv *convs, const ith_vae_rows *x, const ith_vae_rows *y,
                                 int64_t taken)
{
    residual_end last = {work, &convs[1], convs[0].shortcut || x->x == y->x ? NULL : x, y};
    const ith_conv_output hidden = {put_hidden, &last}, sum = {add_pixels, &last};
    ith_conv *first = &convs[0].conv;
    ith_status status = ITH_OK;
    while (first->taken < taken && !status) {
        int64_t end = ith_min64(first->taken + first->shape.strip, taken);
        if (convs[0].shortcut)
            status = apply_shortcut(work, &convs[0], x, y, first->taken, end);
        if (!status)
            status = ith_vae_conv_feed(work, &convs[0], x, end, &hidden);
        if (!status)
            status = ith_vae_conv_advance(work, &convs[1], first->made, &sum);
    }
    return status;
}
