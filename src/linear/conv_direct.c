/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by their definition. There is one matrix product for each frame and each row of the kernel. The pixels
 * that a row of the kernel reads lie side by side in memory, so they already form a row of the left operand. These rows
 * overlap, and no pixel is copied. */
#include "conv_parts.h"

#include <string.h>

/* The largest number of pixels in a block. All filters are read once for each block, so faster products need larger
 * blocks. */
#define MOST_PIXELS_F32 256
#define MOST_PIXELS_BF16 512

int64_t ith_conv_direct_cells(const ith_conv *conv)
{
    return ith_round_up(conv->kernel->type == ITH_F32 ? MOST_PIXELS_F32 : MOST_PIXELS_BF16, conv->kernel->rows);
}

/* Bytes of the packed pixels that `across` output pixels of a row read. */
static int64_t row_bytes(const ith_conv *conv, int64_t across)
{
    const ith_conv_shape *s = &conv->shape;
    return conv->kernel->parts * ith_conv_part_bytes(conv, (across + s->kernel - 1) * s->in);
}

static int64_t sums_bytes(const ith_conv *conv)
{
    return ith_round_up(ith_conv_direct_cells(conv) * conv->shape.out * (int64_t)sizeof(float), ITH_ARENA_ALIGNMENT);
}

int64_t ith_conv_direct_bytes(const ith_conv *conv)
{
    int64_t cells = ith_conv_direct_cells(conv), packed = 0;
    if (!ith_conv_is_left(conv, ith_conv_row_type(conv)))
        for (int64_t rows = 1; rows <= ITH_CONV_MOST_ROWS; rows++)
            packed = ith_max64(packed, rows * row_bytes(conv, cells / rows));
    return sums_bytes(conv) + packed;
}

/* Makes the left operand of one product for row `row` of a block. It has no rows if the kernel reads outside the frame
 * there, where all pixels are zero. */
static void take_row(const ith_conv *conv, const ith_conv_block *block, int64_t product, int64_t row, char *memory,
                     ith_conv_left *left)
{
    const ith_conv_shape *s = &conv->shape;
    const ith_dtype type = ith_conv_row_type(conv);
    const int64_t y = block->row + row + product % s->kernel - s->kernel / 2;
    left->rows = y >= 0 && y < s->height ? block->across : 0;
    if (!left->rows)
        return;
    const char *x = ith_conv_input(conv, block->slot, product / s->kernel, y) +
                    block->column * s->in * (int64_t)ith_dtype_bytes(type);
    ith_conv_take_left(conv, x, type, (block->across + s->kernel - 1) * s->in,
                       memory + row * row_bytes(conv, block->across), left);
}

void ith_conv_compute_direct(ith_context *context, const ith_conv *conv, const ith_conv_block *block,
                             const ith_conv_output *output, char *memory)
{
    const ith_conv_shape *s = &conv->shape;
    float *sums = (float *)(void *)memory;
    ith_conv_left left[ITH_CONV_MOST_ROWS];
    for (int64_t i = 0; i < block->rows * block->across; i++)
        memcpy(sums + i * s->out, conv->bias, (size_t)s->out * sizeof *sums);
    for (int64_t row = 0; row < block->rows; row++)
        left[row] =
            (ith_conv_left){.stride = s->in * ith_conv_number_bytes(conv), .sums = sums + row * block->across * s->out};
    for (int64_t product = ith_conv_oldest(conv, block->slot) * s->kernel; product < ith_conv_products(conv);
         product++) {
        if (ith_context_interrupted(context))
            return;
        for (int64_t row = 0; row < block->rows; row++)
            take_row(conv, block, product, row, memory + sums_bytes(conv), &left[row]);
        ith_conv_multiply(conv, product, left, block->rows, true);
    }
    for (int64_t row = 0; row < block->rows; row++)
        output->take(output->user, block->slot, block->row + row, block->column, block->across, left[row].sums);
}
