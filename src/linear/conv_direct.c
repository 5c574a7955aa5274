/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by their definition. There is one matrix product for each frame and each row of the kernel. The pixels
 * that a row of the kernel reads lie side by side in memory, so they already form a row of the left operand. These rows
 * overlap, and no pixel is copied.
 *
 * If the convolution is folded, a row of the left operand is one pixel p. The product has a column for each pair of a
 * tap j of the row of the kernel and an output channel o:
 *
 *     sums[p][j, o] = sum over frames, rows of the kernel and input channels of pixel p times w[j, o],
 *     y[x][o] = bias[o] + sum over j of sums[x + j][j, o]
 *
 * where p and x count from the block's first pixel of input and output. */
#include "conv_parts.h"

#include <string.h>

/* The largest number of pixels in a block. All filters are read once for each block, so faster products need larger
 * blocks; but the sums of a block, which every product reads and writes, should stay in the second-level cache. */
#define MOST_PIXELS_F32 256
#define MOST_PIXELS_BF16 512
#define MOST_SUMS (256 * 1024)

int64_t ith_conv_direct_cells(const ith_conv *conv)
{
    const int64_t most = conv->kernel->type == ITH_F32 ? MOST_PIXELS_F32 : MOST_PIXELS_BF16;
    return ith_round_up(ith_min64(most, ith_max64(MOST_SUMS / ith_conv_sums(conv), 1)), conv->kernel->rows);
}

/* The numbers that `across` output pixels of a row read. */
static int64_t numbers_read(const ith_conv *conv, int64_t across)
{
    const ith_conv_shape *s = &conv->shape;
    return ((across - 1) * ith_conv_stride(conv) + s->kernel) * s->in;
}

/* Bytes of these numbers when they are packed. */
static int64_t row_bytes(const ith_conv *conv, int64_t across)
{
    return conv->kernel->parts * ith_conv_part_bytes(conv, numbers_read(conv, across));
}

/* The number of rows of the left operand for `across` output pixels of a row. */
static int64_t left_rows(const ith_conv *conv, int64_t across)
{
    return across + (conv->folded ? conv->shape.kernel - 1 : 0);
}

/* Bytes of the sums of a block. The folded pixels of a row follow them. */
static int64_t block_sums_bytes(const ith_conv *conv)
{
    const int64_t cells = ith_conv_direct_cells(conv);
    int64_t numbers = cells * ith_conv_sums(conv);
    if (conv->folded)
        numbers += ITH_CONV_MOST_ROWS * (conv->shape.kernel - 1) * ith_conv_sums(conv) + cells * conv->shape.out;
    return ith_round_up(numbers * (int64_t)sizeof(float), ITH_ARENA_ALIGNMENT);
}

int64_t ith_conv_direct_bytes(const ith_conv *conv)
{
    int64_t cells = ith_conv_direct_cells(conv), packed = 0;
    if (!ith_conv_is_left(conv, ith_conv_row_type(conv)))
        for (int64_t rows = 1; rows <= ITH_CONV_MOST_ROWS; rows++)
            packed = ith_max64(packed, rows * row_bytes(conv, cells / rows));
    return block_sums_bytes(conv) + packed;
}

/* Makes the left operand of one product for row `row` of a block. It has no rows if the kernel reads outside the frame
 * there, where all pixels are zero. */
static void take_row(const ith_conv *conv, const ith_conv_block *block, int64_t product, int64_t row, char *memory,
                     ith_conv_left *left)
{
    const ith_conv_shape *s = &conv->shape;
    const ith_dtype type = ith_conv_row_type(conv);
    const int64_t y = ith_conv_centre(conv, block->row + row) + product % s->kernel - s->kernel / 2;
    left->rows = y >= 0 && y < s->height ? left_rows(conv, block->across) : 0;
    if (!left->rows)
        return;
    const char *x = ith_conv_input(conv, block->slot, product / s->kernel, y) +
                    ith_conv_centre(conv, block->column) * s->in * (int64_t)ith_dtype_bytes(type);
    ith_conv_take_left(conv, x, type, numbers_read(conv, block->across), memory + row * row_bytes(conv, block->across),
                       left);
}

/* Sets the sums from which the products start: the bias, or zeros that fold adds to the bias. */
static void set_sums(const ith_conv *conv, float *sums, int64_t rows)
{
    const int64_t count = ith_conv_sums(conv);
    if (conv->folded)
        memset(sums, 0, (size_t)(rows * count) * sizeof *sums);
    for (int64_t i = 0; !conv->folded && i < rows; i++)
        memcpy(sums + i * count, conv->bias, (size_t)count * sizeof *sums);
}

/* Computes `across` pixels of y from the sums of a row of a folded convolution. */
static void fold(const ith_conv *conv, int64_t across, const float *sums, float *y)
{
    const int64_t out = conv->shape.out, count = ith_conv_sums(conv);
    for (int64_t x = 0; x < across; x++)
        for (int64_t o = 0; o < out; o++) {
            float sum = conv->bias[o];
            for (int64_t j = 0; j < conv->shape.kernel; j++)
                sum += sums[(x + j) * count + j * out + o];
            y[x * out + o] = sum;
        }
}

void ith_conv_compute_direct(ith_context *context, const ith_conv *conv, const ith_conv_block *block,
                             const ith_conv_output *output, char *memory)
{
    const ith_conv_shape *s = &conv->shape;
    const int64_t rows = left_rows(conv, block->across), row_sums = rows * ith_conv_sums(conv);
    float *sums = (float *)(void *)memory, *pixels = sums + block->rows * row_sums;
    ith_conv_left left[ITH_CONV_MOST_ROWS];
    set_sums(conv, sums, block->rows * rows);
    for (int64_t row = 0; row < block->rows; row++)
        left[row] = (ith_conv_left){.stride = ith_conv_stride(conv) * s->in * ith_conv_number_bytes(conv),
                                    .sums = sums + row * row_sums};
    for (int64_t product = ith_conv_oldest(conv, block->slot) * s->kernel; product < ith_conv_products(conv);
         product++) {
        if (ith_context_interrupted(context))
            return;
        for (int64_t row = 0; row < block->rows; row++)
            take_row(conv, block, product, row, memory + block_sums_bytes(conv), &left[row]);
        ith_conv_multiply(conv, product, left, block->rows, true);
    }
    for (int64_t row = 0; row < block->rows; row++) {
        if (conv->folded)
            fold(conv, block->across, left[row].sums, pixels);
        output->take(output->user, block->slot, block->row + row, block->column, block->across,
                     conv->folded ? pixels : left[row].sums);
    }
}
