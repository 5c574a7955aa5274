/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN for the engine's layers: primitives of one product or one convolution, their packed weights, their execution.
 * This is the only module that uses oneDNN; onednn_api.h hides the difference between its versions 2 and 3.
 *
 * Statuses of oneDNN become those of this library, with a sentence that names what was asked for. */
#ifndef ITH_LINEAR_ONEDNN_H
#define ITH_LINEAR_ONEDNN_H

#include "../base/context.h"

struct dnnl_memory;
struct dnnl_stream;

/* Whether oneDNN has bf16 instructions to multiply with, and uses none that ith_context_cpu leaves out. Elsewhere it
 * refuses bf16, or widens it at a loss of speed. */
bool ith_onednn_multiplies_bf16(const ith_context *context);

/* A primitive made for fixed shapes. Read-only once created: any number of threads may run it at once. */
typedef struct ith_onednn_op ith_onednn_op;

/* dst[rows, out] = src[rows, in] w^T + bias, w [out, in]; src and dst contiguous. src and w are of `type`, F32 or BF16,
 * dst and bias of F32. Runs in the thread that executes it, whatever OpenMP team there is. ITH_ERR_UNSUPPORTED where
 * oneDNN has no product of that type. */
typedef struct ith_onednn_matmul {
    int64_t rows, in, out;
    ith_dtype type;
} ith_onednn_matmul;
ith_status ith_onednn_matmul_create(ith_context *context, const ith_onednn_matmul *shape,
                                                ith_onednn_op **out);

/* A convolution of channels-last frames, zeros around each of them:
 *   dst[y, x, o] (+)= bias[o] + sum_{t, i, j, c} w[o, c, t, i, j] src[t, y + i - kernel/2, x + j - kernel/2, c]
 * src and w are of `type`, F32 or BF16, dst and bias of F32. Runs in the team that the thread which creates it has
 * then. */
typedef struct ith_onednn_conv {
    int64_t in, out;       /* channels */
    int64_t frames;        /* of src, and of the kernel in time */
    int64_t kernel;        /* height and width of it, odd */
    int64_t height, width; /* of src and dst */
    bool adds;             /* to what dst holds */
    bool has_border;       /* src has kernel/2 rows more above and below, in place of zeros there */
    ith_dtype type;
} ith_onednn_conv;
ith_status ith_onednn_conv_create(ith_context *context, const ith_onednn_conv *shape, ith_onednn_op **out);
void ith_onednn_op_destroy(ith_context *context, ith_onednn_op **op);
/* Bytes that an op takes from the context. */
int64_t ith_onednn_op_bytes(void);
/* Objects of oneDNN that this process has made so far: primitives, their descriptions, streams, memory handles. */
int64_t ith_onednn_objects_made(void);

/* Of the packed weights, and of the scratch memory that an execution needs; multiples of 64. */
int64_t ith_onednn_weight_bytes(const ith_onednn_op *op);
int64_t ith_onednn_scratch_bytes(const ith_onednn_op *op);

/* The handle by which executions name weights that lie in the op's own layout at `packed`, which stays the caller's.
 * ITH_ERR_INTERNAL without a sentence on failure, so that several threads may ask at once. */
ith_status ith_onednn_weights_at(const ith_onednn_op *op, void *packed, struct dnnl_memory **weights);
/* The same, after putting plain weights of the op's type (contiguous) there. */
ith_status ith_onednn_pack(const ith_onednn_op *op, const void *plain, void *packed,
                                       struct dnnl_memory **weights);
void ith_onednn_weights_free(struct dnnl_memory **weights);

/* What one thread needs to execute an op; made and used by that thread. Zero it before; ith_onednn_lane_close also
 * takes one that failed to open, or a zeroed one. No sentences, as above. */
typedef struct ith_onednn_lane {
    const ith_onednn_op *op;
    struct dnnl_stream *stream;
    struct dnnl_memory *src, *bias, *dst, *scratch;
} ith_onednn_lane;
ith_status ith_onednn_lane_open(const ith_onednn_op *op, ith_onednn_lane *lane);
void ith_onednn_lane_close(ith_onednn_lane *lane);
/* scratch: ith_onednn_scratch_bytes, aligned to 64. */
ith_status ith_onednn_execute(ith_onednn_lane *lane, const void *src, struct dnnl_memory *weights,
                                      const float *bias, float *dst, void *scratch);

#endif
