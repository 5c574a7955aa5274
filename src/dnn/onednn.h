/* The only door to oneDNN: primitives of one product or one convolution, its packed weights, and their execution. The
 * 2.x and 3.x interfaces of the library differ; what lies behind this header knows both, nothing else knows either.
 *
 * Statuses of oneDNN become those of this library, with a sentence that names what was asked for. */
#ifndef ITH_DNN_ONEDNN_H
#define ITH_DNN_ONEDNN_H

#include "../base/context.h"
#include "precision.h"

struct dnnl_memory;
struct dnnl_stream;

/* A primitive made for fixed shapes. Read-only once created: any number of threads may run it at once. */
typedef struct ith_onednn_op ith_onednn_op;

/* dst[rows, out] = src[rows, in] w^T + bias, w [out, in]; src contiguous, rows of dst dst_stride elements apart. src
 * and w are of `precision`, dst and bias f32. Runs in the thread that executes it, whatever OpenMP team there is.
 * ITH_ERR_UNSUPPORTED where the machine has no product of that precision. */
typedef struct ith_onednn_matmul {
    int64_t rows, in, out;
    ith_precision precision;
} ith_onednn_matmul;
ITH_PRIVATE ith_status ith_onednn_matmul_create(ith_context *context, const ith_onednn_matmul *shape,
                                                ith_onednn_op **out);

/* A convolution of channels-last frames, zeros around each of them:
 *   dst[y, x, o] (+)= bias[o] + sum_{t, i, j, c} w[o, c, t, i, j] src[t, y + i - kernel/2, x + j - kernel/2, c]
 * src and w are of `precision`, dst and bias f32. Runs in the team that the thread which creates it has then. */
typedef struct ith_onednn_conv {
    int64_t in, out;       /* channels */
    int64_t frames;        /* of src, and of the kernel in time */
    int64_t kernel;        /* height and width of it, odd */
    int64_t height, width; /* of src and dst */
    bool adds;             /* to what dst holds */
    ith_precision precision;
} ith_onednn_conv;
ITH_PRIVATE ith_status ith_onednn_conv_create(ith_context *context, const ith_onednn_conv *shape, ith_onednn_op **out);
ITH_PRIVATE void ith_onednn_op_destroy(ith_context *context, ith_onednn_op **op);

/* Of the packed weights, and of the scratch memory that an execution needs; multiples of 64. */
ITH_PRIVATE int64_t ith_onednn_weight_bytes(const ith_onednn_op *op);
ITH_PRIVATE int64_t ith_onednn_scratch_bytes(const ith_onednn_op *op);

/* Puts plain weights of the op's precision (contiguous) in the op's own layout at `packed`, which stays the caller's,
 * and makes the handle by which executions name them. ITH_ERR_INTERNAL without a sentence on failure, so that several
 * threads may pack for one context at once. */
ITH_PRIVATE ith_status ith_onednn_pack(const ith_onednn_op *op, const void *plain, void *packed,
                                       struct dnnl_memory **weights);
ITH_PRIVATE void ith_onednn_weights_free(struct dnnl_memory **weights);

/* What one thread needs to execute an op; made and used by that thread. Zero it before; ith_onednn_lane_close also
 * takes one that failed to open, or a zeroed one. No sentences, as above. */
typedef struct ith_onednn_lane {
    const ith_onednn_op *op;
    struct dnnl_stream *stream;
    struct dnnl_memory *src, *bias, *dst, *scratch;
} ith_onednn_lane;
ITH_PRIVATE ith_status ith_onednn_lane_open(const ith_onednn_op *op, ith_onednn_lane *lane);
ITH_PRIVATE void ith_onednn_lane_close(ith_onednn_lane *lane);
/* scratch: ith_onednn_scratch_bytes, aligned to 64. */
ITH_PRIVATE ith_status ith_onednn_run(ith_onednn_lane *lane, const void *src, struct dnnl_memory *weights,
                                      const float *bias, float *dst, void *scratch);

#endif
