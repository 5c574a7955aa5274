/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the product kernel for the products of a convolution (conv_parts.h). */
#include "conv_parts.h"

void ith_conv_take_left(const ith_conv *conv, const void *x, ith_dtype type, int64_t count, char *memory,
                        ith_conv_left *left)
{
    left->data = x, left->parts = 1;
    if (ith_conv_is_left(conv, type))
        return;
    left->data = memory;
    left->parts = ith_product_parts(conv->kernel, type, false);
    left->part_bytes = ith_conv_part_bytes(conv, count);
    const ith_product_left request = {
        .x = x, .dtype = type, .count = count, .to = memory, .part_bytes = left->part_bytes};
    conv->kernel->pack_left(&request);
}

/* The number of steps of one call of the kernel: a product's steps are cut into blocks of nearly equal size, about
 * kernel->depth. The number of steps depends only on the convolution and on the number of frames since
 * ith_conv_clear, not on the block of output. The bits of the sums depend on nothing else either. */
static int64_t call_steps(const ith_conv *conv)
{
    int64_t steps = ith_conv_steps(conv) - ith_conv_first_step(conv), depth = conv->kernel->depth;
    int64_t blocks = ith_max64((steps + depth / 2) / depth, 1);
    return ith_round_up(ith_div_up(steps, blocks), conv->kernel->step);
}

/* The right panel that the kernel needs after steps [first, first + most) of a panel: of the next panel, of the first
 * panel at the next steps, or of the next product. NULL after the last product. */
static const char *next_panel(const ith_conv *conv, int64_t product, int64_t panel, int64_t first, int64_t most)
{
    if (++panel == ith_conv_panels(conv))
        panel = 0, first += most;
    if (first >= ith_conv_steps(conv))
        first = ith_conv_first_step(conv), product += ith_conv_product_step(conv);
    if (product >= ith_conv_products(conv))
        return NULL;
    return ith_conv_panel(conv, product, panel) + conv->kernel->right_bytes(first);
}

/* Each panel of filters stays in the first-level cache while it is multiplied by all left operands. */
void ith_conv_multiply(const ith_conv *conv, int64_t product, const ith_conv_left *left, int64_t count, bool adds)
{
    const ith_product_kernel *kernel = conv->kernel;
    const int64_t steps = ith_conv_steps(conv), most = call_steps(conv), sums = ith_conv_sums(conv);
    const int64_t begin = ith_conv_first_step(conv);
    for (int64_t first = begin; first < steps; first += most)
        for (int64_t panel = 0; panel < ith_conv_panels(conv); panel++) {
            const int64_t column = panel * kernel->columns;
            const char *next = next_panel(conv, product, panel, first, most);
            for (int64_t i = 0; i < count; i++) {
                const ith_product_call call = {.rows = left[i].rows,
                                               .columns = ith_min64(kernel->columns, sums - column),
                                               .steps = ith_min64(most, steps - first),
                                               .left = left[i].data + first * ith_conv_number_bytes(conv),
                                               .left_stride = left[i].stride,
                                               .part_bytes = left[i].part_bytes,
                                               .parts = left[i].parts,
                                               .right =
                                                   ith_conv_panel(conv, product, panel) + kernel->right_bytes(first),
                                               .out = left[i].sums + column,
                                               .out_stride = sums,
                                               .adds = adds || first > begin,
                                               .next = i + 1 == count ? next : NULL};
                kernel->multiply(&call);
            }
        }
}
