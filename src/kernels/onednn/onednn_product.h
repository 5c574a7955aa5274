/* SPDX-License-Identifier: Apache-2.0 */
/* A product of matrices by oneDNN, of shapes that are fixed when it is made:
 *
 *     dst [rows, out] (+)= src [rows, in] w [in, out]        src, w: bf16, dst: f32, sums in f32
 *
 * src and dst are contiguous. w lies in blocks as bf16 dot products and AMX like to read it,
 * [out / width][in / 32][16][width][2]: pairs along `in` side by side. in is a multiple of 32, out of width, which is
 * 32 or 64. */
#ifndef ITH_KERNELS_ONEDNN_PRODUCT_H
#define ITH_KERNELS_ONEDNN_PRODUCT_H

#include "../../base/context.h"

struct dnnl_primitive_desc;
struct dnnl_primitive;
struct dnnl_memory;
struct dnnl_stream;

typedef struct onednn_shape {
    int64_t rows, in, out, width;
    bool adds; /* to what dst holds */
} onednn_shape;

/* Made once, read-only from then on: any number of threads may run it at once. Zeroed: there is none. */
typedef struct onednn_product {
    struct dnnl_primitive_desc *descriptor;
    struct dnnl_primitive *primitive;
    int64_t scratch_bytes; /* a multiple of 64 */
} onednn_product;

/* False, and a zeroed product, where oneDNN has no fast one for this processor. */
bool onednn_product_make(const onednn_shape *shape, onednn_product *out);
void onednn_product_free(onednn_product *product);

/* What one thread needs to run a product; it runs in that thread alone. Zeroed: closed. */
typedef struct onednn_lane {
    const onednn_product *product;
    struct dnnl_stream *stream;
    struct dnnl_memory *src, *weights, *dst, *scratch;
} onednn_lane;

/* scratch: scratch_bytes, aligned to 64. False without memory. */
bool onednn_lane_open(const onednn_product *product, void *scratch, onednn_lane *lane);
void onednn_lane_close(onednn_lane *lane);
bool onednn_lane_run(const onednn_lane *lane, const void *src, const void *weights, float *dst);

#endif
