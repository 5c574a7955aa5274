/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3 x 3 and 3 x 3 x 3 by F(2x2, 3x3) over the plane. Convolutions of 3 x 3 x 3 over pairs of frames use
 * F(2x2x2, 3x3x3) or F(2x2x4, 3x3x3) (kernels/winograd.h). A block is a rectangle of tiles. For each of the four rows
 * of u * v, a thread transforms the pixels of all input frames and computes the products of the row. It adds the
 * transformed results to the pixels of the output.
 *
 * If the input has squares of 2 x 2 equal pixels (shape.doubled), rows 1 and 2 of each tile d are equal, and so are
 * columns 1 and 2. Then row 2 and column 2 of v = B^T d B are zeros, and their 7 of 16 products are left out. */
#include "conv_parts.h"

#include <string.h>

/* The largest number of tiles in a block, rounded up to whole tiles of the kernel. All filters are read once for each
 * block, so blocks are large; but one matrix of v must stay in the second-level cache. */
#define MOST_TILES 128
/* The same for tiles of 2 x 4 pixels. Their filters are small, but 24 matrices of v are computed at a time, which
 * should stay in the second-level cache. */
#define MOST_TILES_4 64
#define MOST_TILES_4_NARROW 32
#define NARROW_CHANNELS 128 /* the most input channels with so few tiles */
#define MATRIX_GAP 80       /* numbers between two neighbouring matrices of v or m */

int64_t ith_conv_plane_cells(const ith_conv *conv)
{
    int64_t most = MOST_TILES;
    if (conv->tile_width == 4)
        most = conv->shape.in <= NARROW_CHANNELS ? MOST_TILES_4_NARROW : MOST_TILES_4;
    return ith_round_up(most, conv->kernel->rows);
}

/* The number of products for each element of the plane: 4 for a pair of frames, otherwise 1. */
static int64_t times_of(const ith_conv *conv)
{
    return ith_conv_is_joint(conv) ? 4 : 1;
}

/* The number of the product that belongs to element `element` of the plane and to row `time` over time. The
 * first frame of a video uses the newest filter, which is row 3. */
static int64_t product_of(const ith_conv *conv, int64_t element, int64_t time)
{
    if (!conv->joint)
        return element;
    return 4 * element + (ith_conv_is_joint(conv) ? time : 3);
}

/* The distance between two neighbouring matrices of `count` numbers each. If it were a multiple of 4096 bytes, the
 * transforms, which visit the same place in all matrices at once, would use few sets of the first-level cache. */
static int64_t matrix_stride(int64_t count)
{
    return ith_round_up(count, 16) + MATRIX_GAP;
}

/* The scratch memory of a thread. The matrices of tiles lie matrix_stride apart. */
typedef struct plane_memory {
    float *v;      /* [columns of v][times][tiles][steps] */
    float *m;      /* [columns of v][times][tiles][out] */
    float *pixels; /* [frames][rows of tiles][2][tile width * across][out]: pixels of the output */
} plane_memory;

/* Takes the scratch memory for a block of `tiles` tiles from an arena. An arena without memory only counts the bytes.
 */
static plane_memory lay_out(const ith_conv *conv, int64_t times, int64_t tiles, ith_arena *arena)
{
    const int64_t number = sizeof(float), out = conv->shape.out, count = ith_conv_tile_columns(conv) * times;
    const int64_t pixels = (times > 1 ? 2 : 1) * tiles * 2 * conv->tile_width;
    return (plane_memory){.v = ith_arena_take(arena, count * matrix_stride(tiles * ith_conv_steps(conv)), number),
                          .m = ith_arena_take(arena, count * matrix_stride(tiles * out), number),
                          .pixels = ith_arena_take(arena, pixels * out, number)};
}

int64_t ith_conv_plane_bytes(const ith_conv *conv)
{
    ith_arena arena = {0};
    lay_out(conv, conv->joint ? 4 : 1, ith_conv_plane_cells(conv), &arena);
    return arena.used_bytes;
}

/* Sets the two rows of pixels from which row `index` of B^T d is computed, for row `row` of tiles and input frame
 * `frame`. */
static void set_rows(const ith_conv *conv, const ith_conv_block *block, int index, int64_t row, int64_t frame,
                     ith_winograd_input *input, int place)
{
    static const struct {
        int first, second; /* rows of d in row `index` of B^T d */
    } rows[4] = {{0, 2}, {1, 2}, {2, 1}, {1, 3}};
    const int64_t y = block->row + 2 * row - 1;
    const int64_t begin = block->column * conv->shape.in * (int64_t)ith_dtype_bytes(input->dtype);
    input->first[place] = ith_conv_input(conv, block->slot, frame, y + rows[index].first) + begin;
    input->second[place] = ith_conv_input(conv, block->slot, frame, y + rows[index].second) + begin;
}

/* Computes row `index` of v = B^T d B for all tiles and frames of a block. */
static void transform_input(const ith_conv *conv, const ith_conv_block *block, int index, float *v)
{
    const ith_conv_shape *s = &conv->shape;
    const int64_t steps = ith_conv_steps(conv);
    ith_winograd_input input = {.width = conv->tile_width,
                                .dtype = ith_conv_row_type(conv),
                                .adds = index == 1,
                                .tiles = block->across,
                                .channels = s->in,
                                .product_stride = matrix_stride(block->rows * block->across * steps),
                                .tile_stride = steps};
    for (int64_t row = 0; row < block->rows; row++) {
        float *tiles = v + row * block->across * steps;
        if (conv->joint) { /* all four input frames, or the newest one only */
            input.frames = (int)times_of(conv), input.v = tiles;
            for (int place = 0; place < input.frames; place++)
                set_rows(conv, block, index, row, input.frames > 1 ? place : s->frames - 1, &input, place);
            conv->winograd->input(&input);
            continue;
        }
        for (int64_t frame = ith_conv_first_step(conv) / s->in; frame < s->frames; frame++) {
            input.frames = 1, input.v = tiles + frame * s->in;
            set_rows(conv, block, index, row, frame, &input, 0);
            conv->winograd->input(&input);
        }
    }
}

/* Whether row or column `index` of v is zero. */
static bool is_zero(const ith_conv *conv, int64_t index)
{
    return conv->shape.doubled && index == 2;
}

/* Sets the sums of the column of products that is left out to zero. */
static void clear_column(const ith_conv *conv, int64_t tiles, float *m)
{
    const int64_t times = times_of(conv), count = tiles * conv->shape.out;
    for (int64_t i = 0; i < ith_conv_tile_columns(conv) * times; i++)
        if (is_zero(conv, i / times))
            memset(m + i * matrix_stride(count), 0, (size_t)count * sizeof *m);
}

/* Computes the matrix products that belong to row `index` of u * v. */
static void multiply(const ith_conv *conv, int64_t tiles, int index, const plane_memory *memory)
{
    const int64_t steps = ith_conv_steps(conv), times = times_of(conv), columns = ith_conv_tile_columns(conv);
    for (int64_t i = 0; i < columns * times; i++) {
        if (is_zero(conv, i / times))
            continue;
        const ith_conv_left left = {.data = (const char *)(memory->v + i * matrix_stride(tiles * steps)),
                                    .rows = tiles,
                                    .stride = steps * (int64_t)sizeof(float),
                                    .parts = 1,
                                    .sums = memory->m + i * matrix_stride(tiles * conv->shape.out)};
        ith_conv_multiply(conv, product_of(conv, columns * index + i / times, i % times), &left, 1, false);
    }
}

/* The number of numbers in a row of pixels of a block. */
static int64_t block_row_numbers(const ith_conv *conv, const ith_conv_block *block)
{
    return conv->tile_width * block->across * conv->shape.out;
}

/* The address of the two rows of pixels that belong to row `row` of tiles. */
static float *pixels_of(const ith_conv *conv, const ith_conv_block *block, int64_t frame, int64_t row, float *pixels)
{
    return pixels + (frame * block->rows + row) * 2 * block_row_numbers(conv, block);
}

static void transform_output(const ith_conv *conv, const ith_conv_block *block, int index, const plane_memory *memory)
{
    const int64_t out = conv->shape.out;
    ith_winograd_output output = {.width = conv->tile_width,
                                  .frames = ith_conv_is_joint(conv) ? 2 : 1,
                                  .row = index,
                                  .tiles = block->across,
                                  .channels = out,
                                  .product_stride = matrix_stride(block->rows * block->across * out),
                                  .bias = conv->bias};
    for (int64_t row = 0; row < block->rows; row++) {
        output.m = memory->m + row * block->across * out;
        for (int frame = 0; frame < output.frames; frame++) {
            output.upper[frame] = pixels_of(conv, block, frame, row, memory->pixels);
            output.lower[frame] = output.upper[frame] + block_row_numbers(conv, block);
        }
        conv->winograd->output(&output);
    }
}

/* Gives the pixels of the tiles to `output`, without the pixels outside the frame. */
static void give(const ith_conv *conv, const ith_conv_block *block, const ith_conv_output *output, float *pixels)
{
    const int64_t count = ith_min64(conv->tile_width * block->across, conv->shape.width - block->column);
    for (int64_t frame = 0; frame < (ith_conv_is_joint(conv) ? 2 : 1); frame++)
        for (int64_t row = 0; row < 2 * block->rows && block->row + row < block->end; row++)
            output->take(output->user, block->slot + frame, block->row + row, block->column, count,
                         pixels_of(conv, block, frame, row / 2, pixels) + row % 2 * block_row_numbers(conv, block));
}

void ith_conv_compute_plane(ith_context *context, const ith_conv *conv, const ith_conv_block *block,
                            const ith_conv_output *output, char *memory)
{
    const int64_t tiles = block->rows * block->across;
    ith_arena arena = {.base = memory};
    const plane_memory places = lay_out(conv, times_of(conv), tiles, &arena);
    clear_column(conv, tiles, places.m);
    for (int index = 0; index < 4; index++) {
        if (ith_context_interrupted(context))
            return;
        if (is_zero(conv, index))
            continue;
        transform_input(conv, block, index, places.v);
        multiply(conv, tiles, index, &places);
        transform_output(conv, block, index, &places);
    }
    give(conv, block, output, places.pixels);
}
