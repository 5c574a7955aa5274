/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions on a ring of frames, by oneDNN, whose primitives cannot be stopped. A large one is therefore cut into
 * bands of rows, each a run of the same primitive on a copy of its rows and of those that its kernel reaches into, or
 * zeros. */
#include "conv.h"

#include "../base/size.h"
#include "onednn.h"

#include <omp.h>
#include <string.h>

#define MOST_FRAMES 4
#define CACHE_LINE 64

struct ith_conv {
    ith_conv_shape shape;
    int64_t band;      /* rows; the height where it is not cut */
    ith_onednn_op *op; /* of a band */
    ith_onednn_lane lane;
    char *packed;                             /* [shape.frames] of the packings below */
    struct dnnl_memory *weights[MOST_FRAMES]; /* by the slot of the newest frame */
    float *bias;
};

int64_t ith_conv_frame_bytes(const ith_conv_shape *shape)
{
    return shape->height * shape->width * shape->in * ith_dtype_bytes(shape->types.multiplied);
}

/* Taps in the order of the slots: slot newest + 1 holds the oldest frame. One output channel a task. */
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

static ith_status pack(ith_context *context, ith_conv *conv, const void *weight, ith_dtype type)
{
    const ith_conv_shape *s = &conv->shape;
    int64_t count = s->out * s->in * s->frames * s->kernel * s->kernel, bytes = ith_onednn_weight_bytes(conv->op);
    conv->packed = ith_alloc(context, s->frames, bytes, "packed weights");
    void *turned =
        conv->packed ? ith_alloc(context, count, ith_dtype_bytes(s->types.multiplied), "weights being packed") : NULL;
    if (!turned)
        return ITH_ERR_MEMORY;
    ith_status status = ITH_OK;
    for (int64_t newest = 0; newest < s->frames && !status; newest++) {
        if (ith_context_interrupted(context)) {
            ith_free(context, turned);
            return ith_fail_interrupted(context);
        }
        turn_taps(conv, weight, type, newest, turned);
        status = ith_onednn_pack(conv->op, turned, conv->packed + newest * bytes, &conv->weights[newest]);
    }
    ith_free(context, turned);
    return status
               ? ith_fail(context, status, "oneDNN did not pack the weights of a convolution of %lld to %lld channels",
                          (long long)s->in, (long long)s->out)
               : ITH_OK;
}

static ith_status check(ith_context *context, const ith_conv_shape *s, ith_dtype weight_type)
{
    int64_t largest = ith_max64(ith_max64(s->in, s->out), ith_max64(s->height, s->width));
    int64_t least = ith_min64(ith_min64(s->in, s->out), ith_min64(s->height, s->width));
    if (least < 1 || largest > INT32_MAX || s->frames < 1 || s->frames > MOST_FRAMES || s->kernel < 1 ||
        s->kernel % 2 == 0)
        return ith_fail(
            context, ITH_ERR_ARGUMENT,
            "a convolution of %lld to %lld channels, %lld frames deep, kernel %lld, over %lld x %lld: sizes "
            "must be positive, the kernel odd, the depth at most %d",
            (long long)s->in, (long long)s->out, (long long)s->frames, (long long)s->kernel, (long long)s->height,
            (long long)s->width, MOST_FRAMES);
    return ith_operand_types_check(context, &s->types, weight_type, "a convolution");
}

double ith_conv_operations(const ith_conv_shape *s)
{
    double taps = (double)(s->frames * s->kernel * s->kernel);
    return 2 * taps * (double)(s->in * ith_round_up(s->out, 16)) * (double)(s->height * s->width);
}

/* Operations of a band for each thread: about a quarter of a second. */
static double band_operations(const ith_context *context, const ith_conv_shape *s)
{
    uint32_t cpu = ith_context_cpu(context);
    if (s->types.multiplied == ITH_BF16 && cpu & ITH_CPU_AMX_BF16)
        return 1e11;
    if (cpu & ITH_CPU_AVX512)
        return 2.5e10;
    return cpu & ITH_CPU_AVX2 ? 1e10 : 2e9;
}

/* Rows of a band: the most that divide the height and are few enough operations for the calling thread's team. */
static int64_t band_rows(const ith_context *context, const ith_conv_shape *s)
{
    double bands = ith_conv_operations(s) / (band_operations(context, s) * omp_get_max_threads());
    int64_t rows = s->height;
    while (rows > 1 && (s->height % rows || (double)rows * bands > (double)s->height))
        rows--;
    return rows;
}

static ith_status create_op(ith_context *context, const ith_conv_shape *shape, ith_onednn_op **op)
{
    int64_t rows = band_rows(context, shape);
    const ith_onednn_conv description = {.in = shape->in,
                                         .out = shape->out,
                                         .frames = shape->frames,
                                         .kernel = shape->kernel,
                                         .height = rows,
                                         .width = shape->width,
                                         .adds = shape->adds,
                                         .has_border = rows < shape->height,
                                         .type = shape->types.multiplied};
    return ith_onednn_conv_create(context, &description, op);
}

/* Of the copy of a band with its borders; 0 where nothing is cut. */
static int64_t band_bytes(const ith_conv_shape *s, int64_t rows)
{
    int64_t row_bytes = s->width * s->in * ith_dtype_bytes(s->types.multiplied);
    return rows < s->height ? s->frames * (rows + s->kernel / 2 * 2) * row_bytes : 0;
}

/* Behind oneDNN's own scratch memory. */
static int64_t band_offset(const ith_onednn_op *op)
{
    return ith_round_up(ith_onednn_scratch_bytes(op), CACHE_LINE);
}

ith_status ith_conv_create(ith_context *context, const ith_conv_shape *shape, const void *weight, ith_dtype weight_type,
                           const float *bias, ith_conv **conv)
{
    *conv = NULL;
    ith_status status = check(context, shape, weight_type);
    if (status)
        return status;
    ith_conv *c = ith_alloc_zero(context, 1, sizeof *c, "a convolution");
    if (!c)
        return ITH_ERR_MEMORY;
    c->shape = *shape;
    c->band = band_rows(context, shape);
    status = create_op(context, shape, &c->op);
    if (!status)
        status = pack(context, c, weight, weight_type);
    if (!status && !(c->bias = ith_alloc(context, shape->out, sizeof *c->bias, "a bias")))
        status = ITH_ERR_MEMORY;
    if (!status)
        memcpy(c->bias, bias, (size_t)shape->out * sizeof *bias);
    if (!status && ith_onednn_lane_open(c->op, &c->lane))
        status = ith_fail(context, ITH_ERR_INTERNAL, "oneDNN made no memory objects for a convolution");
    *conv = c;
    if (status)
        ith_conv_destroy(context, conv);
    return status;
}

void ith_conv_destroy(ith_context *context, ith_conv **conv)
{
    if (!conv || !*conv)
        return;
    ith_conv *c = *conv;
    ith_onednn_lane_close(&c->lane);
    for (int i = 0; i < MOST_FRAMES; i++)
        ith_onednn_weights_free(&c->weights[i]);
    ith_onednn_op_destroy(context, &c->op);
    ith_free(context, c->packed);
    ith_free(context, c->bias);
    ith_free(context, c);
    *conv = NULL;
}

int64_t ith_conv_scratch_bytes(const ith_conv *conv)
{
    return band_offset(conv->op) + band_bytes(&conv->shape, conv->band);
}

ith_status ith_conv_predict_scratch(ith_context *context, const ith_conv_shape *shape, int64_t *bytes)
{
    ith_onednn_op *op = NULL;
    ith_status status = create_op(context, shape, &op);
    *bytes = status ? 0 : band_offset(op) + band_bytes(shape, band_rows(context, shape));
    ith_onednn_op_destroy(context, &op);
    return status;
}

int64_t ith_conv_bytes(const ith_conv_shape *shape)
{
    int64_t taps = shape->frames * shape->kernel * shape->kernel; /* oneDNN pads channels to 16 */
    int64_t packed =
        ith_round_up(shape->in, 16) * ith_round_up(shape->out, 16) * taps * ith_dtype_bytes(shape->types.multiplied);
    return shape->frames * packed + shape->out * 4 + (int64_t)sizeof(ith_conv);
}

/* The rows of the band that begins at `first`, as they lie if they do so without a gap, otherwise copied. */
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

ith_status ith_conv_run(ith_context *context, ith_conv *conv, const void *ring, int64_t newest, float *dst,
                        void *scratch)
{
    const ith_conv_shape *s = &conv->shape;
    if (newest < 0 || newest >= s->frames)
        return ith_fail(context, ITH_ERR_ARGUMENT, "slot %lld of a ring of %lld frames", (long long)newest,
                        (long long)s->frames);
    for (int64_t first = 0; first < s->height; first += conv->band) {
        if (ith_context_interrupted(context))
            return ith_fail_interrupted(context);
        const void *rows = take_band(conv, ring, first, (char *)scratch + band_offset(conv->op));
        if (ith_onednn_execute(&conv->lane, rows, conv->weights[newest], conv->bias, dst + first * s->width * s->out,
                               scratch))
            return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not compute a convolution of %lld to %lld channels",
                            (long long)s->in, (long long)s->out);
    }
    return ITH_OK;
}
