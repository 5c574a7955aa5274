/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution of frames [height, width, channels] that looks back in time: its input is a ring of as many frames as
 * the kernel is deep, of which the newest may lie in any slot. Nothing is ever moved: there is one packing of the
 * weights for each place of the newest frame, with the taps turned round as the frames are.
 *
 *   dst[y, x, o] (+)= b[o] + sum_{t, i, j, c} w[o, c, t, i, j] frame(t)[y + i - kernel/2, x + j - kernel/2, c]
 *
 * where frame(frames - 1) is the newest, and there are zeros around every frame. */
#ifndef ITH_LINEAR_CONV_H
#define ITH_LINEAR_CONV_H

#include "../base/context.h"
#include "operand.h"

typedef struct ith_conv_shape {
    int64_t in, out;       /* channels */
    int64_t frames;        /* of the kernel in time, and of the ring */
    int64_t kernel;        /* height and width of it, odd */
    int64_t height, width; /* of a frame */
    bool adds;             /* to what dst holds */
    ith_operand_types types;
} ith_conv_shape;

/* Made for the OpenMP team of the calling thread; used by one thread at a time, with a team of that size. */
typedef struct ith_conv ith_conv;

/* weight [out, in, frames, kernel, kernel] of F32, BF16 or F16; it and bias [out] are copied. The weights are rounded
 * to types.stored but held as types.multiplied: oneDNN takes all of them at once. */
ith_status ith_conv_create(ith_context *context, const ith_conv_shape *shape, const void *weight, ith_dtype weight_type,
                           const float *bias, ith_conv **conv);
void ith_conv_destroy(ith_context *context, ith_conv **conv);

/* Bytes of a frame of the ring, of the scratch memory for a run (aligned to 64), and held by such a convolution. */
int64_t ith_conv_frame_bytes(const ith_conv_shape *shape);
int64_t ith_conv_scratch_bytes(const ith_conv *conv);
int64_t ith_conv_bytes(const ith_conv_shape *shape);
/* *bytes: ith_conv_scratch_bytes of such a convolution, made with a team of today's size. */
ith_status ith_conv_predict_scratch(ith_context *context, const ith_conv_shape *shape, int64_t *bytes);

/* Multiplications and additions of a run, about. */
double ith_conv_operations(const ith_conv_shape *shape);

/* ITH_ERR_INTERRUPTED within some tenths of a second after the context is interrupted, however large the frames are.
 * ring [frames][height, width, in] as ith_operand_round leaves it; newest: the slot of the newest frame; dst [height,
 * width, out]. */
ith_status ith_conv_run(ith_context *context, ith_conv *conv, const void *ring, int64_t newest, float *dst,
                        void *scratch);

#endif
