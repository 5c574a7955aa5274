/* SPDX-License-Identifier: Apache-2.0 */
/* Causal convolutions of video. They take one frame or a pair of frames at a time, a few rows at a time.
 *
 *     y[r, x, o] = b[o] + sum_{t, i, j, c} w[o, c, t, i, j] frame(t)[r + i - kernel/2, x + j - kernel/2, c]
 *
 * frame(frames - 1) is the newest frame, frame(0) the oldest. Pixels outside a frame are zero, and so are all pixels of
 * frames before the first. Products with frames before the first are left out.
 *
 * A convolution may halve height and width: y then has only the pixels with odd r and x of this equation, numbered from
 * 0. So a kernel of 3 x 3 begins at every second pixel. It reads zeros only below and on the right of a frame with even
 * sides. A convolution may also halve the frames: y is then computed for the second frame of each pair only, and not
 * for the first frame of a video.
 *
 * A convolution holds frames - 1 whole frames of input and a few rows more, in a ring buffer: a row of the newest frame
 * overwrites a row of the oldest frame that is no longer needed. If frames come in pairs, the first frame of a video
 * comes alone, as the second frame of a pair. For each frame or pair the caller
 *
 *   1. calls ith_conv_begin,
 *   2. writes the next rows of each frame, at most `strip` rows, to the addresses that ith_conv_row returns,
 *   3. calls ith_conv_advance, which computes all rows of y that can be computed now, and goes on with step 2.
 *
 * So the rows of y can become input rows of the next convolution at once, without a buffer for a whole frame.
 *
 * Convolutions are matrix products (kernels/product.h): pixels are the left operand, filters the right operand, which
 * is packed once. There are three ways to compute them:
 *
 *   - Convolutions that multiply f32 use Winograd's transforms (kernels/winograd.h, conv_plane.c). Kernels of 3 x 3 or
 *     3 x 3 x 3 use F(2x2, 3x3) over the plane, with 4/9 of the multiplications. If frames come in pairs, kernels of
 *     3 x 3 x 3 use F(2x2x2, 3x3x3), with 8/27. With few input channels, so that the filters are small, they use
 *     F(2x2x4, 3x3x3), with 2/9. If the input is doubled, 7 of 16 products are left out.
 *   - Convolutions with very few output channels are folded (conv_direct.c): the taps of a row of the kernel become
 *     columns of the product, so that fewer lanes of vectors are empty.
 *   - All other convolutions follow the definition (conv_direct.c).
 *
 * A number of y has the same bits for any number of threads and any `strip`. A NaN or an infinity in a pixel reaches
 * only the pixels of y that read it. With the transforms it also reaches the other pixels of their tiles (2 x 2 or 2 x
 * 4 pixels; the first tile is at row 0 and column 0). */
#ifndef ITH_LINEAR_CONV_H
#define ITH_LINEAR_CONV_H

#include "../base/arena.h"
#include "../base/context.h"
#include "../kernels/product.h"
#include "../kernels/winograd.h"
#include "operand.h"

/* The sizes and types of a convolution. */
typedef struct ith_conv_shape {
    int64_t in, out;       /* channels of a pixel before and after the convolution */
    int64_t frames;        /* depth of the kernel in time */
    int64_t kernel;        /* height and width of the kernel, which are equal and odd */
    int64_t height, width; /* height and width of a frame */
    int64_t strip;         /* the largest number of input rows that the caller writes before each ith_conv_advance */
    ith_operand_types types;
    bool pairs;       /* the frames after the first come in pairs; only with a depth of 1 or 3 */
    bool halves;      /* y is half as high and half as wide, rounded down; at least 1 */
    bool halves_time; /* y is computed for the second frame of each pair only */
    bool doubled;     /* the input has squares of 2 x 2 equal pixels, from even coordinates on; less work */
} ith_conv_shape;

/* The height and the width of y. */
static inline int64_t ith_conv_out_height(const ith_conv_shape *shape)
{
    return shape->halves ? shape->height / 2 : shape->height;
}

static inline int64_t ith_conv_out_width(const ith_conv_shape *shape)
{
    return shape->halves ? shape->width / 2 : shape->width;
}

/* A convolution: its packed weights and the rows of its input frames. */
typedef struct ith_conv {
    ith_conv_shape shape;
    const ith_product_kernel *kernel;
    const ith_winograd *winograd; /* the transforms of F(2x2, 3x3) and its relatives; NULL: by the definition */
    int tile_width;               /* pixels of a tile of these transforms side by side: 2 or 4 */
    bool folded;       /* the products have a column for each tap of a row of the kernel and each output channel */
    bool joint;        /* pairs of frames are computed together, with F(2x2x2, 3x3x3) or F(2x2x4, 3x3x3) */
    int64_t slots;     /* number of frames in a group of frames: 2 if they come in pairs, otherwise 1 */
    int64_t row_bytes; /* bytes of a row of input, with pixels of zeros on its left and right */
    int64_t ring_rows; /* number of rows of each slot in the ring buffer */
    const float *bias;
    char *packed;   /* [products][panels of output channels]: the filters as right panels */
    char *rows;     /* [ring_rows][slots] rows of input, and one row of zeros */
    int64_t newest; /* index in the ring of row 0 of the newest group */
    int64_t known;  /* number of frames since ith_conv_clear, at most frames + 1; the older frames are zeros */
    int64_t first;  /* the first slot of the newest group: 1 for the first frame of pairs, otherwise 0 */
    int64_t taken;  /* number of rows of the newest frames that the caller has written */
    int64_t made;   /* number of rows of y that have been computed for the newest frames */
} ith_conv;

/* The consumer of rows of y. take gets `count` pixels of row `row` from column `first` on, with the bias added, of the
 * frame in slot `slot`. It gets every pixel once, from any thread of the team. */
typedef struct ith_conv_output {
    void (*take)(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels);
    void *user;
} ith_conv_output;

/* Initialises conv: checks the shape and chooses the kernels. Returns ITH_ERR_ARGUMENT if a size or a type is illegal.
 */
ith_status ith_conv_create(ith_context *context, const ith_conv_shape *shape, ith_conv *conv);

/* Takes memory for the packed weights from the arena. */
void ith_conv_lay_out_weights(ith_conv *conv, ith_arena *arena);
/* Takes memory for the rows of input from the arena. */
void ith_conv_lay_out_rows(ith_conv *conv, ith_arena *arena);

/* Rounds weight [out, in, frames, kernel, kernel] of F32, BF16 or F16 to types.stored and packs it. bias [out] must
 * outlive conv. scratch: ith_conv_packing_bytes(conv, threads) bytes, aligned to 64. Returns ITH_ERR_IO if the file of
 * the weights is cut while it is read. */
ith_status ith_conv_pack(ith_context *context, ith_conv *conv, const void *weight, ith_dtype weight_type,
                         const float *bias, void *scratch);
/* Bytes of scratch memory that ith_conv_pack needs with a team of `threads` threads. */
int64_t ith_conv_packing_bytes(const ith_conv *conv, int threads);
/* Bytes of scratch memory that ith_conv_advance needs with a team of `threads` threads. */
int64_t ith_conv_scratch_bytes(const ith_conv *conv, int threads);
/* The number of additions and multiplications for one frame of y by the definition. */
double ith_conv_operations(const ith_conv_shape *shape);

/* Sets all rows to zero, so that the next frame is the first. All threads take part, so that each page of memory is
 * first touched by a thread that will use it. After an interruption the rows are not all zero. */
void ith_conv_clear(ith_context *context, ith_conv *conv);
/* The number type of the pixels in the rows that ith_conv_row returns: types.rounded. */
static inline ith_dtype ith_conv_row_type(const ith_conv *conv)
{
    return conv->shape.types.rounded;
}
/* Begins a new frame or pair. The caller must have written all rows of the frames before it. conv->first is then the
 * first slot of the new frames, conv->slots - 1 the last. */
void ith_conv_begin(ith_conv *conv);
/* The number of frames of y for the newest frames. */
static inline int64_t ith_conv_out_frames(const ith_conv *conv)
{
    return conv->shape.halves_time ? (conv->first ? 0 : 1) : conv->slots - conv->first;
}
/* The address to which the caller writes row `row` of the newest frame in slot `slot`: [width, in] numbers of
 * ith_conv_row_type. `row` is at least conv->taken and less than conv->taken + shape.strip. */
void *ith_conv_row(const ith_conv *conv, int64_t slot, int64_t row);
/* Computes all rows of y that depend only on the rows before `taken`, which the caller has written, with the calling
 * thread's OpenMP team. Afterwards conv->made counts the rows computed so far; if `taken` is shape.height, it is the
 * height of y. Returns ITH_ERR_ARGUMENT if `taken` decreases or exceeds shape.height, and ITH_ERR_INTERRUPTED within
 * some milliseconds after the context is interrupted. */
ith_status ith_conv_advance(ith_context *context, ith_conv *conv, int64_t taken, const ith_conv_output *output,
                            void *scratch);

#endif
