/* SPDX-License-Identifier: Apache-2.0 */
/* Causal convolutions of video, one frame at a time. The input is a ring of as many frames as the kernel is deep; the
 * newest frame may lie in any slot. Frames are never moved: the weights are packed once for each slot that may hold the
 * newest frame, with their taps in the order of the slots.
 *
 *     dst[y, x, o] (+)= b[o] + sum_{t, i, j, c} w[o, c, t, i, j] frame(t)[y + i - kernel/2, x + j - kernel/2, c]
 *
 * frame(frames - 1) is the newest. Pixels outside a frame are zero.
 *
 * A convolution is created, laid out in an arena, and packed; then it may be applied any number of times. */
#ifndef ITH_LINEAR_CONV_H
#define ITH_LINEAR_CONV_H

#include "../base/arena.h"
#include "../base/context.h"
#include "onednn.h"
#include "operand.h"

/* The largest depth of a kernel in time. */
#define ITH_CONV_MOST_FRAMES 4

/* The sizes and types of a convolution. */
typedef struct ith_conv_shape {
    int64_t in, out;       /* channels of a pixel before and after the convolution */
    int64_t frames;        /* depth of the kernel in time, and number of frames of the ring */
    int64_t kernel;        /* height and width of the kernel, which are equal and odd */
    int64_t height, width; /* height and width of a frame */
    bool adds;             /* the result is added to dst; otherwise it overwrites dst */
    ith_operand_types types;
} ith_conv_shape;

/* A convolution: its oneDNN objects and its packed weights. */
typedef struct ith_conv {
    ith_conv_shape shape;
    int64_t band;      /* rows of a frame that one call of oneDNN computes; equal to height if a frame is not cut */
    ith_onednn_op *op; /* the primitive that computes one band */
    ith_onednn_lane lane;
    const float *bias;
    char *packed; /* packed weights: a copy for each slot of the ring that may hold the newest frame */
    /* oneDNN handles of the copies of the packed weights, indexed by the slot of the newest frame. */
    struct dnnl_memory *weights[ITH_CONV_MOST_FRAMES];
} ith_conv;

/* Makes the oneDNN objects of a convolution for the OpenMP team of the calling thread. One thread at a time may use
 * them, with a team of that size. conv is zeroed first; the caller destroys it, even if this fails. */
ith_status ith_conv_create(ith_context *context, const ith_conv_shape *shape, ith_conv *conv);
void ith_conv_destroy(ith_context *context, ith_conv *conv);

/* Takes memory for the packed weights from the arena. */
void ith_conv_lay_out(ith_conv *conv, ith_arena *arena);
/* Rounds weight [out, in, frames, kernel, kernel] of F32, BF16 or F16 to types.stored and packs it as types.multiplied.
 * bias [out] must outlive conv. scratch: ith_conv_weight_bytes bytes. */
ith_status ith_conv_pack(ith_context *context, ith_conv *conv, const void *weight, ith_dtype weight_type,
                         const float *bias, void *scratch);
/* Bytes of the weights of a convolution, as types.multiplied, before they are packed. */
int64_t ith_conv_weight_bytes(const ith_conv_shape *shape);

/* Bytes of an input frame of a convolution, as types.multiplied. */
int64_t ith_conv_frame_bytes(const ith_conv_shape *shape);
/* Bytes of scratch memory that ith_conv_apply needs; the memory must be aligned to 64. */
int64_t ith_conv_scratch_bytes(const ith_conv *conv);
/* The number of additions and multiplications of ith_conv_apply. */
double ith_conv_operations(const ith_conv_shape *shape);

/* Computes one frame. ring [frames][height, width, in] holds input frames that ith_operand_round has converted; newest
 * is the slot of the newest frame; the output is dst [height, width, out]. Returns ITH_ERR_INTERRUPTED within some
 * tenths of a second after the context is interrupted, at any size. */
ith_status ith_conv_apply(ith_context *context, ith_conv *conv, const void *ring, int64_t newest, float *dst,
                          void *scratch);

#endif
