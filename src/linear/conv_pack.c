/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the filters of a convolution as right panels of its products (conv_parts.h), one panel of output channels at a
 * time. */
#include "../base/dtype.h"
#include "../base/file_fault.h"
#include "../kernels/unpack.h"
#include "conv_parts.h"

#include <omp.h>
#include <stdatomic.h>

#define TOGETHER 16 /* number of columns that are packed together */

static int64_t panel_bytes(const ith_conv *conv)
{
    return conv->kernel->right_bytes(ith_conv_steps(conv));
}

void ith_conv_lay_out_weights(ith_conv *conv, ith_arena *arena)
{
    conv->packed = ith_arena_take(arena, ith_conv_products(conv) * ith_conv_panels(conv), panel_bytes(conv));
}

/* The number of weights of one output channel, [in, frames, kernel, kernel]. */
static int64_t filter_count(const ith_conv_shape *s)
{
    return s->in * s->frames * s->kernel * s->kernel;
}

/* The number of weights of one output channel in each product: one column, or one for each tap if conv is folded. */
static int64_t channel_steps(const ith_conv *conv)
{
    return ith_conv_columns(conv) / conv->shape.out * ith_conv_steps(conv);
}

static int64_t thread_floats(const ith_conv *conv)
{
    const int64_t channels = ith_min64(conv->kernel->columns, conv->shape.out);
    return ith_round_up(filter_count(&conv->shape) + channels * ith_conv_products(conv) * channel_steps(conv), 16);
}

int64_t ith_conv_packing_bytes(const ith_conv *conv, int threads)
{
    return threads * thread_floats(conv) * (int64_t)sizeof(float);
}

/* A request to read the weights of one output channel from a file that may be cut meanwhile. */
typedef struct filter_read {
    const ith_conv_shape *shape;
    const char *weight;
    ith_dtype type;
    int64_t first; /* the first weight of the channel */
    float *to;
} filter_read;

static void read_filter(void *user)
{
    const filter_read *r = user;
    const int64_t count = filter_count(r->shape);
    ith_unpack_ref(r->type, r->weight, r->first, count, r->to);
    for (int64_t i = 0; r->shape->types.stored == ITH_BF16 && i < count; i++)
        r->to[i] = ith_round_to_bf16(r->to[i]);
}

/* Writes one input channel's numbers of the columns of the transformed filters. filter: [frames][3][3]. */
static void make_transformed(const ith_conv *conv, const float *filter, int64_t channel, float *columns)
{
    const int64_t steps = ith_conv_steps(conv), in = conv->shape.in, products = ith_conv_products(conv);
    float u[ITH_WINOGRAD_MOST];
    if (conv->joint) {
        ith_winograd_filter_time(conv->tile_width, u, filter);
        for (int64_t product = 0; product < products; product++)
            columns[product * steps + channel] = u[product];
        return;
    }
    for (int64_t t = 0; t < conv->shape.frames; t++) {
        ith_winograd_filter(conv->tile_width, u, filter + 9 * t);
        for (int64_t product = 0; product < products; product++)
            columns[product * steps + t * in + channel] = u[product];
    }
}

/* Writes one output channel's columns of the right operands, [products][channel_steps], from its filter. */
static void make_columns(const ith_conv *conv, const float *filter, float *columns)
{
    const ith_conv_shape *s = &conv->shape;
    const int64_t plane = s->kernel * s->kernel, steps = channel_steps(conv);
    for (int64_t c = 0; c < s->in; c++, filter += s->frames * plane) {
        if (conv->winograd)
            make_transformed(conv, filter, c, columns);
        for (int64_t i = 0; !conv->winograd && i < s->frames * plane; i++)
            columns[i / s->kernel * steps + i % s->kernel * s->in + c] = filter[i];
    }
}

/* Packs the columns of `count` output channels, at most a panel, for one product. columns: the column of the first
 * channel; the next channel lies `stride` numbers behind it. A folded convolution has several columns a channel: the
 * first tap's columns of all channels come first. The other columns of the panel become zeros. */
static void pack_columns(const ith_conv *conv, char *panel, int64_t count, const float *columns, int64_t stride)
{
    const int64_t all = conv->kernel->columns, steps = ith_conv_steps(conv);
    const int64_t filled = count * (ith_conv_columns(conv) / conv->shape.out);
    for (int64_t first = 0; first < all; first += TOGETHER) {
        const float *x[TOGETHER];
        for (int64_t i = 0; i < TOGETHER; i++)
            x[i] = first + i < filled ? columns + (first + i) % count * stride + (first + i) / count * steps : NULL;
        const ith_product_right right = {
            .x = x, .steps = steps, .first = first, .count = ith_min64(TOGETHER, all - first), .panel = panel};
        conv->kernel->pack_right(&right);
    }
}

/* Packs one panel of output channels for all products. Returns false if the file of the weights was cut. */
static bool pack_panel(const ith_conv *conv, const char *weight, ith_dtype type, int64_t panel, float *memory)
{
    const ith_conv_shape *s = &conv->shape;
    const int64_t filter = filter_count(s), begin = panel * conv->kernel->columns;
    const int64_t count = ith_min64(conv->kernel->columns, s->out - begin);
    const int64_t products = ith_conv_products(conv), steps = channel_steps(conv);
    float *columns = memory + filter; /* [count][products][channel_steps] */
    for (int64_t i = 0; i < count; i++) {
        filter_read request = {s, weight, type, (begin + i) * filter, memory};
        if (!ith_file_fault_guard(read_filter, &request))
            return false;
        make_columns(conv, memory, columns + i * products * steps);
    }
    for (int64_t product = 0; product < products; product++)
        pack_columns(conv, ith_conv_panel(conv, product, panel), count, columns + product * steps, products * steps);
    return true;
}

ith_status ith_conv_pack(ith_context *context, ith_conv *conv, const void *weight, ith_dtype weight_type,
                         const float *bias, void *scratch)
{
    ith_status status = ith_operand_types_check(context, &conv->shape.types, weight_type, "a convolution");
    atomic_bool lost = false;
    conv->bias = bias;
    if (status)
        return status;
#pragma omp parallel for schedule(dynamic)
    for (int64_t panel = 0; panel < ith_conv_panels(conv); panel++) {
        float *memory = (float *)scratch + omp_get_thread_num() * thread_floats(conv);
        if (!ith_context_interrupted(context) && !pack_panel(conv, weight, weight_type, panel, memory))
            atomic_store(&lost, true);
    }
    if (ith_context_interrupted(context))
        return ith_fail_interrupted(context);
    return lost ? ith_fail(context, ITH_ERR_IO, "the file was cut while its weights were packed") : ITH_OK;
}
