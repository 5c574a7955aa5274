/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN for linear layers and convolutions: a primitive for one product or one convolution, its packed weights, its
 * execution. No other module uses oneDNN. onednn_api.h hides the difference between its versions 2 and 3. */
#ifndef ITH_LINEAR_ONEDNN_H
#define ITH_LINEAR_ONEDNN_H

#include "../base/context.h"

struct dnnl_memory;
struct dnnl_stream;

/* Whether oneDNN multiplies bf16 with instructions made for it, all of which ith_context_cpu allows. Otherwise oneDNN
 * refuses bf16, or is slow. */
bool ith_onednn_multiplies_bf16(const ith_context *context);

/* A primitive for fixed shapes. It is read-only once created: any number of threads may execute it at once, each with
 * an ith_onednn_lane of its own. */
typedef struct ith_onednn_op ith_onednn_op;

/* A matrix product dst [rows, out] = src [rows, in] w^T + bias, with w [out, in]; src and dst are contiguous. src and w
 * are of `type`, F32 or BF16; dst and bias are F32. The thread that executes the product computes it alone.
 * ith_onednn_matmul_create returns ITH_ERR_UNSUPPORTED if oneDNN has no product of that type for this processor. */
typedef struct ith_onednn_matmul {
    int64_t rows, in, out;
    ith_dtype type;
} ith_onednn_matmul;
ith_status ith_onednn_matmul_create(ith_context *context, const ith_onednn_matmul *shape, ith_onednn_op **out);

/* A convolution of channels-last frames, with zeros around each frame:
 *     dst[y, x, o] (+)= bias[o] + sum_{t, i, j, c} w[o, c, t, i, j] src[t, y + i - kernel/2, x + j - kernel/2, c]
 * src and w are of `type`, F32 or BF16; dst and bias are F32. It is computed by an OpenMP team of the size that the
 * calling thread's team has when the convolution is created. */
typedef struct ith_onednn_conv {
    int64_t in, out;       /* channels of a pixel of src and of dst */
    int64_t frames;        /* number of frames of src, which is the depth of the kernel in time */
    int64_t kernel;        /* height and width of the kernel, which are equal and odd */
    int64_t height, width; /* height and width of a frame of src and of dst */
    bool adds;             /* the result is added to dst; otherwise it overwrites dst */
    /* src has kernel/2 more rows above and below the frame, which are used instead of zeros. */
    bool has_border;
    ith_dtype type;
} ith_onednn_conv;
ith_status ith_onednn_conv_create(ith_context *context, const ith_onednn_conv *shape, ith_onednn_op **out);
/* Frees a primitive and its other oneDNN objects; NULL is accepted. */
void ith_onednn_op_destroy(ith_context *context, ith_onednn_op **op);
/* Bytes that an ith_onednn_op allocates from the context. */
int64_t ith_onednn_op_bytes(void);
/* The number of oneDNN objects that this process has made so far: primitives, their descriptors, streams and memory
 * handles. */
int64_t ith_onednn_objects_made(void);

/* Bytes of a primitive's packed weights, and of the scratch memory of one execution. Both are multiples of 64. */
int64_t ith_onednn_weight_bytes(const ith_onednn_op *op);
int64_t ith_onednn_scratch_bytes(const ith_onednn_op *op);

/* Makes a oneDNN handle of weights that lie at `packed` in the layout of the primitive; the caller keeps that memory. A
 * failure is ITH_ERR_INTERNAL without a message, so that several threads of one context may call this at once. */
ith_status ith_onednn_weights_at(const ith_onednn_op *op, void *packed, struct dnnl_memory **weights);
/* Packs plain weights (contiguous, of the primitive's type) into `packed`, and makes a oneDNN handle of them. A failure
 * is ITH_ERR_INTERNAL without a message. */
ith_status ith_onednn_pack(const ith_onednn_op *op, const void *plain, void *packed, struct dnnl_memory **weights);
void ith_onednn_weights_free(struct dnnl_memory **weights);

/* The oneDNN objects with which one thread at a time executes a primitive. They are zero before ith_onednn_lane_open.
 * ith_onednn_lane_close accepts zeros, and objects of a failed ith_onednn_lane_open. A failure is ITH_ERR_INTERNAL
 * without a message. */
typedef struct ith_onednn_lane {
    const ith_onednn_op *op;
    struct dnnl_stream *stream;
    struct dnnl_memory *src, *bias, *dst, *scratch;
} ith_onednn_lane;
ith_status ith_onednn_lane_open(const ith_onednn_op *op, ith_onednn_lane *lane);
void ith_onednn_lane_close(ith_onednn_lane *lane);
/* Executes a primitive. scratch has ith_onednn_scratch_bytes bytes, aligned to 64. Within a call, oneDNN 2.6 allocates
 * and frees 296 bytes for a table of its arguments. */
ith_status ith_onednn_execute(ith_onednn_lane *lane, const void *src, struct dnnl_memory *weights, const float *bias,
                              float *dst, void *scratch);

#endif
