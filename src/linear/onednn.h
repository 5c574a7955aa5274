/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN for linear layers and convolutions: a primitive for one product or one convolution, its packed weights, its
 * execution. No other module uses oneDNN. onednn_api.h hides the difference between its versions 2 and 3. */
#ifndef ITH_LINEAR_ONEDNN_H
#define ITH_LINEAR_ONEDNN_H

#include "../base/context.h"

struct dnnl_memory;
struct dnnl_stream;

/* Whether oneDNN multiplies bf16 with instructions for it, all of which ith_context_cpu allows. Otherwise oneDNN
 * refuses bf16, or is slow. */
bool ith_onednn_multiplies_bf16(const ith_context *context);

/* A primitive for fixed shapes. Read-only once created: any number of threads may execute it at once, each with a lane
 * of its own. */
typedef struct ith_onednn_op ith_onednn_op;

/* dst[rows, out] = src[rows, in] w^T + bias, w [out, in]; src and dst contiguous. src and w are of `type`, F32 or BF16,
 * dst and bias of F32. The product is computed by the thread that executes it alone. ITH_ERR_UNSUPPORTED if oneDNN has
 * no product of that type for this processor. */
typedef struct ith_onednn_matmul {
    int64_t rows, in, out;
    ith_dtype type;
} ith_onednn_matmul;
ith_status ith_onednn_matmul_create(ith_context *context, const ith_onednn_matmul *shape, ith_onednn_op **out);

/* A convolution of channels-last frames, zeros around each of them:
 *   dst[y, x, o] (+)= bias[o] + sum_{t, i, j, c} w[o, c, t, i, j] src[t, y + i - kernel/2, x + j - kernel/2, c]
 * src and w are of `type`, F32 or BF16, dst and bias of F32. Computed by the OpenMP team that the creating thread has
 * at creation. */
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

/* Of the packed weights, and of the scratch memory of an execution. Multiples of 64. */
int64_t ith_onednn_weight_bytes(const ith_onednn_op *op);
int64_t ith_onednn_scratch_bytes(const ith_onednn_op *op);

/* A handle for executions, of weights in the layout of the op at `packed`, which stays the caller's. A failure is
 * ITH_ERR_INTERNAL without a sentence, so that several threads of one context may call this at once. */
ith_status ith_onednn_weights_at(const ith_onednn_op *op, void *packed, struct dnnl_memory **weights);
/* The same, after packing plain weights (contiguous, of the op's type) into `packed`. */
ith_status ith_onednn_pack(const ith_onednn_op *op, const void *plain, void *packed, struct dnnl_memory **weights);
void ith_onednn_weights_free(struct dnnl_memory **weights);

/* Objects with which one thread at a time executes an op. Zero before it is opened; ith_onednn_lane_close takes also a
 * zero lane, and one that failed to open. Failures as above. */
typedef struct ith_onednn_lane {
    const ith_onednn_op *op;
    struct dnnl_stream *stream;
    struct dnnl_memory *src, *bias, *dst, *scratch;
} ith_onednn_lane;
ith_status ith_onednn_lane_open(const ith_onednn_op *op, ith_onednn_lane *lane);
void ith_onednn_lane_close(ith_onednn_lane *lane);
/* scratch: ith_onednn_scratch_bytes, aligned to 64. oneDNN 2.6 allocates and frees 296 bytes within a call, for a table
 * of its arguments. */
ith_status ith_onednn_execute(ith_onednn_lane *lane, const void *src, struct dnnl_memory *weights, const float *bias,
                              float *dst, void *scratch);

#endif
