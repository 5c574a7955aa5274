/* SPDX-License-Identifier: Apache-2.0 */
/* The memory for the rows of a convolution's input, and the division of its output into blocks (conv.h). */
#include "conv_parts.h"

#include <omp.h>
#include <string.h>

#define CLEARED_TOGETHER 65536 /* number of bytes that a thread clears at a time */
#define FEW_COLUMNS 16         /* the most columns of the products of a folded convolution: one or two vectors */
#define FEW_CHANNELS 256       /* the most input channels of F(2x2x4, 3x3x3), which has larger filters */
#define LEAST_CELLS 32         /* blocks of about this many cells are not divided among more threads */
/* The largest sizes of a convolution, which keep numbers of bytes below 2^63. */
#define MOST_FRAMES 4     /* the largest depth of a kernel in time */
#define MOST_KERNEL 127   /* the largest height and width of a kernel */
#define MOST_SIZE 1048576 /* the largest number of channels, and the largest height and width of a frame */

double ith_conv_operations(const ith_conv_shape *s)
{
    double taps = (double)(s->frames * s->kernel * s->kernel);
    return 2 * taps * (double)(s->in * s->out) * (double)(ith_conv_out_height(s) * ith_conv_out_width(s));
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static ith_status check_shape(ith_context *context, const ith_conv_shape *s)
{
    int64_t largest = ith_max64(ith_max64(s->in, s->out), ith_max64(s->height, s->width));
    int64_t least = ith_min64(ith_min64(s->in, s->out), ith_min64(ith_conv_out_height(s), ith_conv_out_width(s)));
    if (least < 1 || largest > MOST_SIZE || s->frames < 1 || s->frames > MOST_FRAMES || s->kernel < 1 ||
        s->kernel > MOST_KERNEL || s->kernel % 2 == 0 || s->strip < 1 || (s->pairs && s->frames % 2 == 0) ||
        (s->halves_time && !s->pairs) || (s->doubled && (s->height % 2 || s->width % 2)))
        return ith_fail(
            context, ITH_ERR_ARGUMENT,
            "a convolution of %lld to %lld channels, %lld frames deep, kernel %lld, over %lld x %lld in strips of "
            "%lld%s%s%s%s: sizes are from 1 to %d, the depth is at most %d (odd for pairs), the kernel is odd and at "
            "most %d, strips have at least 1 row, only pairs of frames can be halved, doubled frames have even sides",
            (long long)s->in, (long long)s->out, (long long)s->frames, (long long)s->kernel, (long long)s->height,
            (long long)s->width, (long long)s->strip, s->pairs ? ", pairs of frames" : "",
            s->halves ? ", half as high and wide" : "", s->halves_time ? ", half the frames" : "",
            s->doubled ? ", doubled" : "", MOST_SIZE, MOST_FRAMES, MOST_KERNEL);
    return ith_operand_types_check(context, &s->types, ITH_F32, "a convolution");
}

/* The number of rows of each slot in the ring. A row of the newest frame overwrites the row of the oldest frame that
 * lies `extra` rows above it. So no row of y that is still to be computed may read that row. When the caller writes
 * `strip` further rows, at most kernel / 2 + cell - 1 rows of y above them are still to be computed. The first of these
 * reads kernel / 2 rows above itself. */
static int64_t ring_rows(const ith_conv *conv)
{
    const ith_conv_shape *s = &conv->shape;
    int64_t extra = ith_min64(s->strip, s->height) + s->kernel / 2 * 2 + ith_conv_cell_height(conv) - 1;
    return ith_conv_groups(conv) * s->height + ith_min64(extra, s->height);
}

/* The number of pixels in a row of input: the frame's pixels, rounded up to whole cells, and pixels of zeros on both
 * sides. */
static int64_t row_pixels(const ith_conv *conv)
{
    const ith_conv_shape *s = &conv->shape;
    return ith_round_up(s->width, ith_conv_cell_width(conv)) + s->kernel / 2 * 2;
}

static int64_t pixel_bytes(const ith_conv *conv)
{
    return conv->shape.in * ith_dtype_bytes(ith_conv_row_type(conv));
}

/* The product kernel of a convolution. Without a kernel of type BF16, a kernel of type F32 multiplies bf16 numbers,
 * whose products are exact in f32. Kernels that split f32 numbers into three parts are not used: their filters take 3/2
 * of the memory, and splitting the pixels anew for each product costs most of the time that the products save. */
static const ith_product_kernel *choose_kernel(ith_dtype type, uint32_t cpu)
{
    const ith_product_kernel *kernel = type == ITH_BF16 ? ith_product_kernel_choose(ITH_BF16, cpu) : NULL;
    for (int i = 0; !kernel && ith_product_kernel_at(i); i++) {
        const ith_product_kernel *k = ith_product_kernel_at(i);
        if (k->type == ITH_F32 && k->parts == 1 && !(k->cpu & ~cpu))
            kernel = k;
    }
    return kernel;
}

ith_status ith_conv_create(ith_context *context, const ith_conv_shape *shape, ith_conv *conv)
{
    *conv = (ith_conv){.shape = *shape};
    ith_status status = check_shape(context, shape);
    if (status)
        return status;
    uint32_t cpu = ith_context_cpu(context);
    conv->kernel = choose_kernel(shape->types.multiplied, cpu);
    conv->folded = shape->kernel > 1 && !shape->halves &&
                   shape->kernel * shape->out <= ith_min64(FEW_COLUMNS, conv->kernel->columns);
    if (shape->kernel == 3 && !shape->halves && !shape->halves_time && conv->kernel->type == ITH_F32 && !conv->folded)
        conv->winograd = ith_winograd_choose(cpu);
    conv->slots = shape->pairs ? 2 : 1;
    conv->joint = conv->winograd && shape->pairs && shape->frames == 3;
    conv->tile_width = conv->joint && shape->in <= FEW_CHANNELS && !shape->doubled ? 4 : 2;
    conv->ring_rows = ring_rows(conv);
    conv->row_bytes = row_pixels(conv) * pixel_bytes(conv);
    conv->taken = shape->height, conv->made = ith_conv_out_height(shape);
    return ITH_OK;
}

void ith_conv_lay_out_rows(ith_conv *conv, ith_arena *arena)
{
    conv->rows = ith_arena_take(arena, conv->ring_rows * conv->slots + 1, conv->row_bytes);
}

void ith_conv_clear(ith_context *context, ith_conv *conv)
{
    int64_t bytes = (conv->ring_rows * conv->slots + 1) * conv->row_bytes;
    conv->newest = conv->known = 0;
    conv->taken = conv->shape.height, conv->made = ith_conv_out_height(&conv->shape);
#pragma omp parallel for schedule(static)
    for (int64_t begin = 0; begin < bytes; begin += CLEARED_TOGETHER)
        if (!ith_context_interrupted(context))
            memset(conv->rows + begin, 0, (size_t)ith_min64(CLEARED_TOGETHER, bytes - begin));
}

void ith_conv_begin(ith_conv *conv)
{
    conv->newest = (conv->newest + conv->shape.height) % conv->ring_rows;
    conv->first = conv->known ? 0 : conv->slots - 1;
    conv->known = ith_min64(conv->known + conv->slots - conv->first, conv->shape.frames + 1);
    conv->taken = conv->made = 0;
}

void *ith_conv_row(const ith_conv *conv, int64_t slot, int64_t row)
{
    return (char *)ith_conv_input(conv, slot, conv->shape.frames - 1, row) + conv->shape.kernel / 2 * pixel_bytes(conv);
}

/* ---- Blocks ---------------------------------------------------------------------------------------------------- */

/* The division of rows of y into blocks of about equal size. A block is some rows of cells, or a part of one long
 * row. */
typedef struct block_grid {
    int64_t cells;   /* number of cells in a row of the frame */
    int64_t across;  /* number of cells in a row of a block; the last block of a row may have fewer */
    int64_t rows;    /* number of rows of cells in a block */
    int64_t columns; /* number of blocks side by side */
    int64_t count;   /* number of blocks of a frame, or of a pair that is computed together */
} block_grid;

/* Cuts `rows` rows of pixels into blocks for the calling thread's team. Each thread gets the same number of blocks. All
 * blocks of a long row but the last have whole tiles of the kernel. Blocks are large, because all filters are read once
 * for each block. */
static block_grid grid_of(const ith_conv *conv, int64_t rows)
{
    const int64_t threads = omp_get_max_threads();
    int64_t most = conv->winograd ? ith_conv_plane_cells(conv) : ith_conv_direct_cells(conv);
    block_grid grid = {.cells = ith_div_up(ith_conv_out_width(&conv->shape), ith_conv_cell_width(conv))};
    const int64_t cell_rows = ith_div_up(rows, ith_conv_cell_height(conv)), all = cell_rows * grid.cells;
    if (!all)
        return grid;
    most = ith_min64(most, ith_max64(ith_div_up(all, ith_round_up(ith_div_up(all, most), threads)), LEAST_CELLS));
    grid.across = ith_round_up(ith_div_up(grid.cells, ith_div_up(grid.cells, most)), conv->kernel->rows);
    grid.across = ith_min64(grid.across, ith_min64(grid.cells, most));
    grid.columns = ith_div_up(grid.cells, grid.across);
    grid.rows = grid.columns > 1 ? 1 : ith_min64(most / grid.across, ITH_CONV_MOST_ROWS);
    grid.count = ith_div_up(cell_rows, grid.rows) * grid.columns;
    return grid;
}

static int64_t thread_bytes(const ith_conv *conv)
{
    return ith_round_up(conv->winograd ? ith_conv_plane_bytes(conv) : ith_conv_direct_bytes(conv), ITH_ARENA_ALIGNMENT);
}

int64_t ith_conv_scratch_bytes(const ith_conv *conv, int threads)
{
    return threads * thread_bytes(conv);
}

/* The number of rows of each frame of y that can be computed once the caller has written the input rows before `taken`.
 * The transforms compute pairs of rows. A convolution that halves the height has no y for the first row. */
static int64_t rows_ready(const ith_conv *conv, int64_t taken)
{
    if (taken == conv->shape.height)
        return ith_conv_out_height(&conv->shape);
    int64_t rows = ith_max64(taken - conv->shape.kernel / 2, 0) / ith_conv_stride(conv);
    return rows / ith_conv_cell_height(conv) * ith_conv_cell_height(conv);
}

static ith_conv_block block_of(const ith_conv *conv, const block_grid *grid, int64_t index, int64_t end)
{
    const int64_t height = ith_conv_cell_height(conv), column = index % grid->columns * grid->across;
    const int64_t row = conv->made + index % grid->count / grid->columns * grid->rows * height;
    const int64_t first = conv->slots - ith_conv_out_frames(conv);
    return (ith_conv_block){.slot = first + index / grid->count,
                            .row = row,
                            .column = column * ith_conv_cell_width(conv),
                            .rows = ith_min64(grid->rows, ith_div_up(end - row, height)),
                            .across = ith_min64(grid->across, grid->cells - column),
                            .end = end};
}

ith_status ith_conv_advance(ith_context *context, ith_conv *conv, int64_t taken, const ith_conv_output *output,
                            void *scratch)
{
    const int64_t end = rows_ready(conv, taken), bytes = thread_bytes(conv);
    ith_conv_compute *const compute = conv->winograd ? ith_conv_compute_plane : ith_conv_compute_direct;
    if (taken < conv->taken || taken > conv->shape.height)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld rows after %lld of %lld rows of a frame", (long long)taken,
                        (long long)conv->taken, (long long)conv->shape.height);
    const block_grid grid = grid_of(conv, end - conv->made);
    const int64_t frames = ith_conv_is_joint(conv) ? 1 : ith_conv_out_frames(conv);
    conv->taken = taken;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < frames * grid.count; i++) {
        const ith_conv_block block = block_of(conv, &grid, i, end);
        if (!ith_context_interrupted(context))
            compute(context, conv, &block, output, (char *)scratch + omp_get_thread_num() * bytes);
    }
    conv->made = end;
    return ith_context_interrupted(context) ? ith_fail_interrupted(context) : ITH_OK;
}
