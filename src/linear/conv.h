/* SPDX-License-Identifier: Apache-2.0 */
/* Causal convolutions of video, one frame at a time. The input is a ring of as many frames as the kernel is deep; the
 * newest frame may lie in any slot. Frames are never moved: the weights are packed once for each place of the newest
 * frame, with the taps in the order of the slots.
 *
 *   dst[y, x, o] (+)= b[o] + sum_{t, i, j, c} w[o, c, t, i, j] frame(t)[y + i - kernel/2, x + j - kernel/2, c]
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

#define ITH_CONV_MOST_FRAMES 4

typedef struct ith_conv_shape {
    int64_t in, out;       /* channels */
    int64_t frames;        /* depth of the kernel in time, and frames of the ring */
    int64_t kernel;        /* height and width, odd */
    int64_t height, width; /* of a frame */
    bool adds;             /* the result is added to dst */
    ith_operand_types types;
} ith_conv_shape;

typedef struct ith_conv {
    ith_conv_shape shape;
    int64_t band;      /* rows of one call of oneDNN; height: the frame is not cut */
    ith_onednn_op *op; /* computes one band */
    ith_onednn_lane lane;
    const float *bias;
    char *packed;                                      /* the weights, packed `frames` times */
    struct dnnl_memory *weights[ITH_CONV_MOST_FRAMES]; /* by the slot of the newest frame */
} ith_conv;

/* Makes the objects of oneDNN for the OpenMP team of the calling thread. One thread at a time may use them, with a team
 * of that size. conv is zeroed first, and is destroyed by the caller also after a failure. */
ith_status ith_conv_create(ith_context *context, const ith_conv_shape *shape, ith_conv *conv);
void ith_conv_destroy(ith_context *context, ith_conv *conv);

/* Takes memory for the packed weights. */
void ith_conv_lay_out(ith_conv *conv, ith_arena *arena);
/* weight [out, in, frames, kernel, kernel] of F32, BF16 or F16. It is rounded to types.stored and packed as
 * types.multiplied: oneDNN takes all weights at once. bias [out] must outlive conv. scratch: ith_conv_weight_bytes. */
ith_status ith_conv_pack(ith_context *context, ith_conv *conv, const void *weight, ith_dtype weight_type,
                         const float *bias, void *scratch);
/* Bytes of the weights as types.multiplied, before they are packed. */
int64_t ith_conv_weight_bytes(const ith_conv_shape *shape);

int64_t ith_conv_frame_bytes(const ith_conv_shape *shape);
/* Bytes of scratch memory of ith_conv_apply, which are aligned to 64. */
int64_t ith_conv_scratch_bytes(const ith_conv *conv);
/* Additions and multiplications of ith_conv_apply. */
double ith_conv_operations(const ith_conv_shape *shape);

/* ring [frames][height, width, in] as ith_operand_round leaves it; newest: the slot of the newest frame; dst [height,
 * width, out]. ITH_ERR_INTERRUPTED within some tenths of a second after the context is interrupted, at any size. */
ith_status ith_conv_apply(ith_context *context, ith_conv *conv, const void *ring, int64_t newest, float *dst,
                          void *scratch);

#endif
