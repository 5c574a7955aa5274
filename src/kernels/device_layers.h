/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a transformer's layers on a device, besides attention: linear layers, and the operations on a row
 * between two of them. They belong to the contract of device modules (device.h), whose rules hold here too: functions
 * that take a stream only enqueue work. Numbers are F32 or BF16. Calls with 0 rows do nothing. */
#ifndef ITH_KERNELS_DEVICE_LAYERS_H
#define ITH_KERNELS_DEVICE_LAYERS_H

#include "../base/modules.h" /* the types of ithaca.h */

struct ith_device;
struct ith_device_stream;

/* The things that one stream needs for linear layers: the library of matrix products, scratch memory of the device, and
 * the algorithm for each size. One stream at a time may use it. */
struct ith_device_products;

/* y = act(x w^T + bias), with sums in f32. x [rows, in] and w [out, in] have the number type `type`; bias [out] and y
 * [rows, out] have the number type `y_type`, which is `type` or F32. F32 operands are multiplied as they are, without
 * TF32. Rows of w are contiguous. y overlaps neither x nor w. Where rows are not aligned, BF16 may be rounded before
 * bias and act too. */
typedef struct ith_device_linear {
    int64_t rows, in, out;
    ith_dtype type, y_type;
    const void *x;
    int64_t x_stride; /* numbers from one row to the next */
    const void *w;
    const void *bias; /* NULL: zeros */
    bool gelu;        /* act(v) = 0.5 v (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3))); false: act(v) = v */
    void *y;
    int64_t y_stride;
} ith_device_linear;

/* Vectors of `dim` numbers on the device, one for each time step. The vector of time step i begins at first + i *
 * stride, which is aligned to 16 bytes if dim is a multiple of 8. stride 0: all time steps have the same vector. */
typedef struct ith_device_vectors {
    const float *first;
    int64_t stride;
} ith_device_vectors;

/* One pass over the rows between two linear layers. For each row x [dim]:
 *
 *   x += gate y               if y is not NULL
 *   n = LN(x) a + b           if n is not NULL; without `normed`, n = x
 *   LN(x) = (x - mean(x)) / sqrt(var(x) + eps)
 *
 * gate, a and b are vectors of the row's time step. Row r is token begin + r % share of batch entry r / share. With
 * known tokens (known > 0) its time step is number 2 (r / share) + 1 if the token is below `known`, and number
 * 2 (r / share) otherwise; without, it is number r / share. n may be y with the same type and stride. dim is at most
 * 8192; dims that are not a multiple of 8 are even and at most 2048. */
typedef struct ith_device_row_update {
    int64_t rows, dim;
    float *x; /* [rows, dim] */
    const void *y;
    ith_dtype y_type;
    int64_t y_stride;
    ith_device_vectors gate; /* first NULL: x += y */
    void *n;
    ith_dtype n_type;
    int64_t n_stride;
    bool normed;
    ith_device_vectors a, b;
    float eps;
    int64_t begin, share, known;
} ith_device_row_update;

/* RMSNorm and RoPE of the first `normed` vectors of dim = heads * head_dim numbers of each row, in place:
 *
 *   v = v / sqrt(mean(v^2) + eps) * weights[i]
 *   (v[2j], v[2j + 1]) of each head is rotated by the angle whose cosine and sine are at [r % tokens][j]
 *
 * Sizes of dim: as in ith_device_row_update. */
typedef struct ith_device_heads {
    int64_t rows, heads, head_dim;
    ith_dtype type;
    void *data; /* row r begins at r * stride, vector i of it dim numbers after vector i - 1 */
    int64_t stride;
    int normed;                   /* 1 or 2 */
    const float *weights[2];      /* [dim] each */
    const float *cosines, *sines; /* [tokens, head_dim / 2]; NULL: no RoPE */
    int64_t tokens;
    float eps;
} ith_device_heads;

/* The operations. A module that has none leaves its pointer to this table NULL. */
typedef struct ith_device_layers {
    /* Loads the library of matrix products if that has not happened yet (ITH_ERR_UNSUPPORTED if it is not found), and
     * takes memory of the device, product_bytes. destroy_products accepts NULL. */
    int64_t product_bytes;
    ith_status (*create_products)(struct ith_device *device, struct ith_device_products **out, char *said);
    void (*destroy_products)(struct ith_device_products *products);
    ith_status (*linear)(struct ith_device_stream *stream, struct ith_device_products *products,
                         const ith_device_linear *linear, char *said);
    ith_status (*update_rows)(struct ith_device_stream *stream, const ith_device_row_update *update, char *said);
    ith_status (*norm_heads)(struct ith_device_stream *stream, const ith_device_heads *heads, char *said);
} ith_device_layers;

#endif
