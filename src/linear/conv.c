/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by oneDNN over a ring of frames (conv.h). A call of oneDNN cannot be interrupted. A large frame is
 * therefore cut into bands of rows. Each band is one call of the same primitive. Its input is a copy of the band's rows
 * and of the rows above and below that the kernel reaches; outside the frame these are zeros. */
#include "conv.h"

#include "../base/size.h"

#include <omp.h>
#include <string.h>

#define CACHE_LINE 64

int64_t ith_conv_frame_bytes(const ith_conv_shape *shape)
{
    return shape->height * shape->width * shape->in * ith_dtype_bytes(shape->types.multiplied);
}

int64_t ith_conv_weight_bytes(const ith_conv_shape *shape)
{
    int64_t taps = shape->frames * shape->kernel * shape->kernel;
    return shape->out * shape->in * taps * ith_dtype_bytes(shape->types.multiplied);
}

/* Counts the operations of one frame. oneDNN pads the output channels to a multiple of 16. */
double ith_conv_operations(const ith_conv_shape *s)
{
    double taps = (double)(s->frames * s->kernel * s->kernel);
    return 2 * taps * (double)(s->in * ith_round_up(s->out, 16)) * (double)(s->height * s->width);
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static ith_status check(ith_context *context, const ith_conv_shape *s)
{
    int64_t largest = ith_max64(ith_max64(s->in, s->out), ith_max64(s->height, s->width));
    int64_t least = ith_min64(ith_min64(s->in, s->out), ith_min64(s->height, s->width));
    if (least < 1 || largest > INT32_MAX || s->frames < 1 || s->frames > ITH_CONV_MOST_FRAMES || s->kernel < 1 ||
        s->kernel % 2 == 0)
        return ith_fail(
            context, ITH_ERR_ARGUMENT,
            "a convolution of %lld to %lld channels, %lld frames deep, kernel %lld, over %lld x %lld: sizes "
            "must be positive, the kernel odd, the depth at most %d",
            (long long)s->in, (long long)s->out, (long long)s->frames, (long long)s->kernel, (long long)s->height,
            (long long)s->width, ITH_CONV_MOST_FRAMES);
    return ith_operand_types_check(context, &s->types, ITH_F32, "a convolution");
}

/* The number of operations that one thread completes in about a quarter of a second. */
static double band_operations(const ith_context *context, const ith_conv_shape *s)
{
    uint32_t cpu = ith_context_cpu(context);
    if (s->types.multiplied == ITH_BF16 && cpu & ITH_CPU_AMX_BF16)
        return 1e11;
    if (cpu & ITH_CPU_AVX512)
        return 2.5e10;
    return cpu & ITH_CPU_AVX2 ? 1e10 : 2e9;
}

/* The number of rows of a frame that one call of oneDNN computes: the largest divisor of the frame's height for which a
 * call takes at most about a quarter of a second on the calling thread's OpenMP team. */
static int64_t band_rows(const ith_context *context, const ith_conv_shape *s)
{
    double bands = ith_conv_operations(s) / (band_operations(context, s) * omp_get_max_threads());
    int64_t rows = s->height;
    while (rows > 1 && (s->height % rows || (double)rows * bands > (double)s->height))
        rows--;
    return rows;
}

/* Makes one oneDNN primitive, which serves all bands of rows of a frame, because they have the same height. */
ith_status ith_conv_create(ith_context *context, const ith_conv_shape *shape, ith_conv *conv)
{
    *conv = (ith_conv){.shape = *shape};
    ith_status status = check(context, shape);
    if (status)
        return status;
    conv->band = band_rows(context, shape);
    const ith_onednn_conv description = {.in = shape->in,
                                         .out = shape->out,
                                         .frames = shape->frames,
                                         .kernel = shape->kernel,
                                         .height = conv->band,
                                         .width = shape->width,
                                         .adds = shape->adds,
                                         .has_border = conv->band < shape->height,
                                         .type = shape->types.multiplied};
    status = ith_onednn_conv_create(context, &description, &conv->op);
    if (!status && ith_onednn_lane_open(conv->op, &conv->lane))
        status = ith_fail(context, ITH_ERR_INTERNAL, "oneDNN made no memory objects for a convolution");
    return status;
}

void ith_conv_destroy(ith_context *context, ith_conv *conv)
{
    ith_onednn_lane_close(&conv->lane);
    for (int i = 0; i < ITH_CONV_MOST_FRAMES; i++)
        ith_onednn_weights_free(&conv->weights[i]);
    ith_onednn_op_destroy(context, &conv->op);
}

/* Bytes of the copy of a band of rows, with the rows above and below it that the kernel reaches; 0 if one band is the
 * whole frame. */
static int64_t band_bytes(const ith_conv *conv)
{
    const ith_conv_shape *s = &conv->shape;
    int64_t row_bytes = s->width * s->in * ith_dtype_bytes(s->types.multiplied);
    return conv->band < s->height ? s->frames * (conv->band + s->kernel / 2 * 2) * row_bytes : 0;
}

/* The offset of the copy of a band of rows in the scratch memory. The copy follows oneDNN's own scratch memory. */
static int64_t band_offset(const ith_conv *conv)
{
    return ith_round_up(ith_onednn_scratch_bytes(conv->op), CACHE_LINE);
}

int64_t ith_conv_scratch_bytes(const ith_conv *conv)
{
    return band_offset(conv) + band_bytes(conv);
}

/* ---- Weights --------------------------------------------------------------------------------------------------- */

/* Takes memory for the packed weights. There is one copy for each slot of the ring of frames, because the order of the
 * weights in time depends on the slot that holds the newest frame. */
void ith_conv_lay_out(ith_conv *conv, ith_arena *arena)
{
    conv->packed = ith_arena_take(arena, conv->shape.frames, ith_onednn_weight_bytes(conv->op));
}

/* Copies the weights, and puts their taps in time in the order in which the ring holds the frames: slot `newest` has
 * the newest frame, and the slot after it the oldest. */
static void turn_taps(const ith_conv *conv, const void *weight, ith_dtype type, int64_t newest, void *turned)
{
    const ith_conv_shape *s = &conv->shape;
    int64_t tap = s->kernel * s->kernel, filter = s->in * s->frames * tap;
    int64_t from_bytes = ith_dtype_bytes(type), to_bytes = ith_dtype_bytes(s->types.multiplied);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < s->out; o++)
        for (int64_t c = 0; c < s->in; c++)
            for (int64_t slot = 0; slot < s->frames; slot++) {
                int64_t t = (slot + s->frames - 1 - newest) % s->frames, row = o * filter + c * s->frames * tap;
                ith_operand_weights(&s->types, (char *)turned + (row + slot * tap) * to_bytes,
                                    (const char *)weight + (row + t * tap) * from_bytes, type, tap);
            }
}

ith_status ith_conv_pack(ith_context *context, ith_conv *conv, const void *weight, ith_dtype weight_type,
                         const float *bias, void *scratch)
{
    const ith_conv_shape *s = &conv->shape;
    ith_status status = ith_operand_types_check(context, &s->types, weight_type, "a convolution");
    conv->bias = bias;
    for (int64_t newest = 0; newest < s->frames && !status; newest++) {
        if (ith_context_interrupted(context))
            return ith_fail_interrupted(context);
        char *packed = conv->packed + newest * ith_onednn_weight_bytes(conv->op);
        turn_taps(conv, weight, weight_type, newest, scratch);
        if (ith_onednn_pack(conv->op, scratch, packed, &conv->weights[newest]))
            status = ith_fail(context, ITH_ERR_INTERNAL,
                              "oneDNN did not pack the weights of a convolution of %lld to %lld channels",
                              (long long)s->in, (long long)s->out);
    }
    return status;
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* Returns the band of rows that begins at row `first`, with the rows above and below it that the kernel reaches. If
 * these rows are contiguous in the ring of frames, the result points into the ring; otherwise they are copied to
 * `copy`. */
static const void *take_band(const ith_conv *conv, const char *ring, int64_t first, char *copy)
{
    const ith_conv_shape *s = &conv->shape;
    const int64_t border = s->kernel / 2, rows = conv->band + 2 * border, top = first - border;
    const int64_t row_bytes = ith_conv_frame_bytes(s) / s->height;
    if (conv->band == s->height)
        return ring;
    if (s->frames == 1 && top >= 0 && top + rows <= s->height)
        return ring + top * row_bytes;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->frames * rows; i++) {
        int64_t row = top + i % rows;
        if (row >= 0 && row < s->height)
            memcpy(copy + i * row_bytes, ring + (i / rows * s->height + row) * row_bytes, (size_t)row_bytes);
        else
            memset(copy + i * row_bytes, 0, (size_t)row_bytes);
    }
    return copy;
}

ith_status ith_conv_apply(ith_context *context, ith_conv *conv, const void *ring, int64_t newest, float *dst,
                          void *scratch)
{
    const ith_conv_shape *s = &conv->shape;
    if (newest < 0 || newest >= s->frames)
        return ith_fail(context, ITH_ERR_ARGUMENT, "slot %lld of a ring of %lld frames", (long long)newest,
                        (long long)s->frames);
    for (int64_t first = 0; first < s->height; first += conv->band) {
        if (ith_context_interrupted(context))
            return ith_fail_interrupted(context);
        const void *rows = take_band(conv, ring, first, (char *)scratch + band_offset(conv));
        if (ith_onednn_execute(&conv->lane, rows, conv->weights[newest], conv->bias, dst + first * s->width * s->out,
                               scratch))
            return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not compute a convolution of %lld to %lld channels",
                            (long long)s->in, (long long)s->out);
    }
    return ITH_OK;
}
