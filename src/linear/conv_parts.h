/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of convolutions share: the matrix products of a convolution, and blocks of its output.
 *
 * A convolution by the definition has frames * kernel products, one for each pair of a frame and a row of the kernel.
 * The pixels that a row of the kernel reads are contiguous, so such a product has kernel * in steps. If the convolution
 * is folded, each product has `in` steps and kernel * out columns, one for each tap of the row of the kernel and each
 * output channel (conv_direct.c). F(2x2, 3x3) has 16 products, one for each element of u * v (kernels/winograd.h),
 * with frames * in steps each; F(2x2x2, 3x3x3) has 64 and F(2x2x4, 3x3x3) has 96, with `in` steps each. */
#ifndef ITH_LINEAR_CONV_PARTS_H
#define ITH_LINEAR_CONV_PARTS_H

#include "conv.h"

#include "../base/size.h"

/* A rectangle of cells of the output that one thread computes. A cell is a pixel, or a tile of 2 x 2 or 2 x 4 pixels of
 * the transforms. */
typedef struct ith_conv_block {
    int64_t slot;         /* the frame; the first frame of a pair that is computed together */
    int64_t row, column;  /* coordinates of the first pixel */
    int64_t rows, across; /* number of rows of cells; number of cells in a row */
    int64_t end;          /* rows of pixels from this one on are not given to the caller, even if a cell has them */
} ith_conv_block;

/* Height of a cell in pixels. */
static inline int64_t ith_conv_cell_height(const ith_conv *conv)
{
    return conv->winograd ? 2 : 1;
}

/* Width of a cell in pixels. */
static inline int64_t ith_conv_cell_width(const ith_conv *conv)
{
    return conv->winograd ? conv->tile_width : 1;
}

/* The number of columns of v: the width of the input pixels of a tile. */
static inline int64_t ith_conv_tile_columns(const ith_conv *conv)
{
    return conv->tile_width + 2;
}

/* The distance between the pixels of the input at the centres of two neighbouring pixels of y. */
static inline int64_t ith_conv_stride(const ith_conv *conv)
{
    return conv->shape.halves ? 2 : 1;
}

/* The row or column of the input at the centre of row or column `place` of y. */
static inline int64_t ith_conv_centre(const ith_conv *conv, int64_t place)
{
    return conv->shape.halves ? 2 * place + 1 : place;
}

/* The number of matrix products of a convolution. */
static inline int64_t ith_conv_products(const ith_conv *conv)
{
    if (conv->winograd)
        return 4 * ith_conv_tile_columns(conv) * (conv->joint ? 4 : 1);
    return conv->shape.frames * conv->shape.kernel;
}

/* The distance between the numbers of the products that are computed one after another. */
static inline int64_t ith_conv_product_step(const ith_conv *conv)
{
    return conv->joint && conv->first > 0 ? 4 : 1;
}

/* The number of steps of each matrix product. */
static inline int64_t ith_conv_steps(const ith_conv *conv)
{
    if (conv->winograd)
        return (conv->joint ? 1 : conv->shape.frames) * conv->shape.in;
    return (conv->folded ? 1 : conv->shape.kernel) * conv->shape.in;
}

/* The number of columns of each matrix product. */
static inline int64_t ith_conv_columns(const ith_conv *conv)
{
    return (conv->folded ? conv->shape.kernel : 1) * conv->shape.out;
}

/* The number of sums of a product for each cell. A folded convolution has whole vectors, whose last columns are zeros.
 */
static inline int64_t ith_conv_sums(const ith_conv *conv)
{
    return conv->folded ? ith_round_up(ith_conv_columns(conv), conv->kernel->lanes) : conv->shape.out;
}

/* Whether the newest frames are a pair that is computed together. */
static inline bool ith_conv_is_joint(const ith_conv *conv)
{
    return conv->joint && conv->first == 0;
}

/* Among the input frames of the output frame in slot `slot`, the index of the oldest one that may differ from zero. */
static inline int64_t ith_conv_oldest(const ith_conv *conv, int64_t slot)
{
    return ith_max64(conv->shape.frames - (conv->known - (conv->slots - 1 - slot)), 0);
}

/* The first step of each matrix product that is computed. The steps before it multiply frames of zeros. It is a
 * multiple of kernel->step, because a right panel can be cut only there. */
static inline int64_t ith_conv_first_step(const ith_conv *conv)
{
    if (!conv->winograd || conv->joint)
        return 0;
    int64_t first = ith_conv_oldest(conv, conv->slots - 1) * conv->shape.in;
    return first - first % conv->kernel->step;
}

/* The number of right panels of each product. A panel holds kernel->columns columns. */
static inline int64_t ith_conv_panels(const ith_conv *conv)
{
    return ith_div_up(ith_conv_columns(conv), conv->kernel->columns);
}

/* The address of a right panel: the packed filters of some output channels for one product. */
static inline char *ith_conv_panel(const ith_conv *conv, int64_t product, int64_t panel)
{
    return conv->packed + (product * ith_conv_panels(conv) + panel) * conv->kernel->right_bytes(ith_conv_steps(conv));
}

/* The number of whole groups of frames that a convolution keeps. */
static inline int64_t ith_conv_groups(const ith_conv *conv)
{
    return ith_div_up(conv->shape.frames - 1, conv->slots);
}

/* The address of row `row` of a frame in the ring, with the pixels of zeros on its left. The frames are numbered from
 * the oldest group on. For a row outside the frame it is the address of the row of zeros. */
static inline const char *ith_conv_kept(const ith_conv *conv, int64_t frame, int64_t row)
{
    const int64_t slots = conv->slots, height = conv->shape.height;
    if (row < 0 || row >= height)
        return conv->rows + conv->ring_rows * slots * conv->row_bytes;
    int64_t place = conv->newest - (ith_conv_groups(conv) - frame / slots) * height + row;
    if (place < 0)
        place += conv->ring_rows;
    return conv->rows + (place % conv->ring_rows * slots + frame % slots) * conv->row_bytes;
}

/* The address of row `row` of input frame `frame` (0: the oldest) of the output frame in slot `slot`. */
static inline const char *ith_conv_input(const ith_conv *conv, int64_t slot, int64_t frame, int64_t row)
{
    return ith_conv_kept(conv, ith_conv_groups(conv) * conv->slots + slot - (conv->shape.frames - 1) + frame, row);
}

/* The largest number of rows of cells in a block. */
#define ITH_CONV_MOST_ROWS 16

/* The left operand of a product for one row of cells, and its sums. */
typedef struct ith_conv_left {
    const char *data;   /* pixels as they lie in memory, or the output of pack_left */
    int64_t rows;       /* number of rows, one for each cell; 0 if all pixels are zero and nothing is added */
    int64_t stride;     /* bytes between two rows of the operand */
    int64_t part_bytes; /* bytes between two parts of the operand */
    int parts;          /* number of parts (kernels/product.h) */
    float *sums;        /* [rows][ith_conv_sums] */
} ith_conv_left;

/* Bytes of a number in one part of a left operand. */
static inline int64_t ith_conv_number_bytes(const ith_conv *conv)
{
    return conv->kernel->type == ITH_F32 && conv->kernel->parts == 1 ? (int64_t)sizeof(float)
                                                                     : (int64_t)sizeof(uint16_t);
}

/* Whether the kernel takes numbers of this type as a left operand without pack_left. */
static inline bool ith_conv_is_left(const ith_conv *conv, ith_dtype type)
{
    return conv->kernel->parts == 1 && conv->kernel->type == type;
}

/* Bytes of one part of `count` packed numbers. */
static inline int64_t ith_conv_part_bytes(const ith_conv *conv, int64_t count)
{
    return ith_round_up(count * ith_conv_number_bytes(conv), ITH_ARENA_ALIGNMENT);
}

/* Sets left->data to `count` numbers of type `type`: to x itself, or to a packed copy in `memory`, which has room for
 * kernel->parts parts. */
void ith_conv_take_left(const ith_conv *conv, const void *x, ith_dtype type, int64_t count, char *memory,
                        ith_conv_left *left);
/* Computes one product for `count` left operands. Adds it to their sums if `adds` is true, otherwise overwrites them.
 */
void ith_conv_multiply(const ith_conv *conv, int64_t product, const ith_conv_left *left, int64_t count, bool adds);

/* Computes a block and gives it to `output`. memory: the thread's scratch memory. May return early if the context is
 * interrupted. */
typedef void ith_conv_compute(ith_context *context, const ith_conv *conv, const ith_conv_block *block,
                              const ith_conv_output *output, char *memory);
ith_conv_compute ith_conv_compute_direct, ith_conv_compute_plane;
/* The largest number of cells in a block. */
int64_t ith_conv_direct_cells(const ith_conv *conv);
int64_t ith_conv_plane_cells(const ith_conv *conv);
/* Bytes of scratch memory that a thread needs to compute a block. */
int64_t ith_conv_direct_bytes(const ith_conv *conv);
int64_t ith_conv_plane_bytes(const ith_conv *conv);

#endif
