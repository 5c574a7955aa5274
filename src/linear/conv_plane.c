/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3 x 3 and 3 x 3 x 3 by F(2x2, 3x3) over the plane (kernels/winograd.h). A block is a rectangle of
 * tiles. For each of the four rows of u * v, a thread transforms the pixels of all frames, computes four products, and
 * adds the transformed results to the pixels of the output. */
#include "conv_parts.h"

/* The largest number of tiles in a block, rounded up to whole tiles of the kernel. All filters are read once for each
 * block, so blocks are large; but one of the four matrices of v must stay in the second-level cache. */
#define MOST_TILES 128

int64_t ith_conv_plane_cells(const ith_conv *conv)
{
    return ith_round_up(MOST_TILES, conv->kernel->rows);
}

/* The scratch memory of a thread. */
typedef struct plane_memory {
    float *v;      /* [4 products][tiles][frames][in] */
    float *m;      /* [4 products][tiles][out] */
    float *pixels; /* [rows of tiles][2][2 across][out]: pixels of the output */
    char *left;    /* one of the four matrices of v as a packed left operand; NULL: the kernel takes v as it is */
} plane_memory;

/* Takes the scratch memory for a block of `tiles` tiles from an arena. An arena without memory only counts the bytes.
 */
static plane_memory lay_out(const ith_conv *conv, int64_t tiles, ith_arena *arena)
{
    const int64_t number = sizeof(float), steps = ith_conv_steps(conv), out = conv->shape.out;
    plane_memory memory = {.v = ith_arena_take(arena, 4 * tiles * steps, number),
                           .m = ith_arena_take(arena, 4 * tiles * out, number),
                           .pixels = ith_arena_take(arena, 4 * tiles * out, number)};
    if (!ith_conv_is_left(conv, ITH_F32))
        memory.left = ith_arena_take(arena, conv->kernel->parts, ith_conv_part_bytes(conv, tiles * steps));
    return memory;
}

int64_t ith_conv_plane_bytes(const ith_conv *conv)
{
    ith_arena arena = {0};
    lay_out(conv, ith_conv_plane_cells(conv), &arena);
    return arena.used_bytes;
}

/* Computes row `index` of v = B^T d B for all tiles and frames of a block. */
static void transform_input(const ith_conv *conv, const ith_conv_block *block, int index, float *v)
{
    static const struct {
        int first, second; /* rows of d in row `index` of B^T d */
    } rows[4] = {{0, 2}, {1, 2}, {2, 1}, {1, 3}};
    const ith_conv_shape *s = &conv->shape;
    const ith_dtype type = ith_conv_row_type(conv);
    const int64_t steps = ith_conv_steps(conv), begin = block->column * s->in * (int64_t)ith_dtype_bytes(type);
    for (int64_t row = 0; row < block->rows; row++)
        for (int64_t frame = ith_conv_first_step(conv) / s->in; frame < s->frames; frame++) {
            const int64_t y = block->row + 2 * row - 1;
            const ith_winograd_input input = {.first = ith_conv_input(conv, frame, y + rows[index].first) + begin,
                                              .second = ith_conv_input(conv, frame, y + rows[index].second) + begin,
                                              .dtype = type,
                                              .adds = index == 1,
                                              .tiles = block->across,
                                              .channels = s->in,
                                              .v = v + row * block->across * steps + frame * s->in,
                                              .product_stride = block->rows * block->across * steps,
                                              .tile_stride = steps};
            conv->winograd->input(&input);
        }
}

/* Computes the four matrix products that belong to row `index` of u * v. */
static void multiply(const ith_conv *conv, int64_t tiles, int index, const plane_memory *memory)
{
    const int64_t steps = ith_conv_steps(conv);
    for (int product = 0; product < 4; product++) {
        ith_conv_left left = {.rows = tiles,
                              .stride = steps * ith_conv_number_bytes(conv),
                              .sums = memory->m + product * tiles * conv->shape.out};
        ith_conv_take_left(conv, memory->v + product * tiles * steps, ITH_F32, tiles * steps, memory->left, &left);
        ith_conv_multiply(conv, 4 * index + product, &left, 1, false);
    }
}

/* The address of the two rows of pixels that belong to row `row` of tiles. */
static float *pixels_of(const ith_conv *conv, const ith_conv_block *block, int64_t row, float *pixels)
{
    return pixels + row * 4 * block->across * conv->shape.out;
}

static void transform_output(const ith_conv *conv, const ith_conv_block *block, int index, const plane_memory *memory)
{
    const int64_t out = conv->shape.out;
    for (int64_t row = 0; row < block->rows; row++) {
        float *upper = pixels_of(conv, block, row, memory->pixels);
        const ith_winograd_output output = {.row = index,
                                            .tiles = block->across,
                                            .channels = out,
                                            .m = memory->m + row * block->across * out,
                                            .product_stride = block->rows * block->across * out,
                                            .bias = conv->bias,
                                            .upper = upper,
                                            .lower = upper + 2 * block->across * out};
        conv->winograd->output(&output);
    }
}

/* Gives the pixels of the tiles to `output`, without the pixels outside the frame. */
static void give(const ith_conv *conv, const ith_conv_block *block, const ith_conv_output *output, float *pixels)
{
    const int64_t count = ith_min64(2 * block->across, conv->shape.width - block->column);
    for (int64_t row = 0; row < 2 * block->rows && block->row + row < block->end; row++)
        output->take(output->user, block->row + row, block->column, count,
                     pixels_of(conv, block, row / 2, pixels) + row % 2 * 2 * block->across * conv->shape.out);
}

void ith_conv_compute_plane(ith_context *context, const ith_conv *conv, const ith_conv_block *block,
                            const ith_conv_output *output, char *memory)
{
    const int64_t tiles = block->rows * block->across;
    ith_arena arena = {.base = memory};
    const plane_memory places = lay_out(conv, tiles, &arena);
    for (int index = 0; index < 4; index++) {
        if (ith_context_interrupted(context))
            return;
        transform_input(conv, block, index, places.v);
        multiply(conv, tiles, index, &places);
        transform_output(conv, block, index, &places);
    }
    give(conv, block, output, places.pixels);
}
