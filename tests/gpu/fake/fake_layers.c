/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a transformer's layers (kernels/device_layers.h) of the fake device, in plain C with sums in
 * f64. */
#include "base/dtype.h"
#include "fake_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double get(const void *numbers, ith_dtype type, int64_t i)
{
    return type == ITH_BF16 ? (double)ith_f32_from_bf16(((const uint16_t *)numbers)[i])
                            : (double)((const float *)numbers)[i];
}

static void put(void *numbers, ith_dtype type, int64_t i, double value)
{
    if (type == ITH_BF16)
        ((uint16_t *)numbers)[i] = ith_bf16_from_f32((float)value);
    else
        ((float *)numbers)[i] = (float)value;
}

/* The address of `rows` rows of `width` numbers, `stride` apart. */
static void *rows_at(struct ith_device *device, const void *pointer, ith_dtype type, int64_t rows, int64_t width,
                     int64_t stride, char *said)
{
    return fake_at(device, pointer, ((rows - 1) * stride + width) * ith_dtype_bytes(type), said);
}

/* ---- Linear layers ----------------------------------------------------------------------------------------------- */

static double gelu(double v)
{
    return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
}

/* Computes columns [column, column + FAKE_TOGETHER) of a row of y, if they exist. */
static void sum_columns(const ith_device_linear *l, int64_t row, int64_t column, const void *x, const double *spread,
                        const void *bias, void *y)
{
    double sums[FAKE_TOGETHER] = {0};
    for (int64_t i = 0; i < FAKE_TOGETHER && bias && column + i < l->out; i++)
        sums[i] = get(bias, l->y_type, column + i);
    fake_add_products(sums, (const char *)x + row * l->x_stride * ith_dtype_bytes(l->type), l->type, l->in, spread);
    for (int64_t i = 0; i < FAKE_TOGETHER && column + i < l->out; i++)
        put(y, l->y_type, row * l->y_stride + column + i, l->gelu ? gelu(sums[i]) : sums[i]);
}

ith_status fake_linear(struct ith_device *device, const ith_device_linear *l, char *said)
{
    if (!l->rows)
        return ITH_OK;
    const void *x = rows_at(device, l->x, l->type, l->rows, l->in, l->x_stride, said);
    const void *w = x ? rows_at(device, l->w, l->type, l->out, l->in, l->in, said) : NULL;
    void *y = w ? rows_at(device, l->y, l->y_type, l->rows, l->out, l->y_stride, said) : NULL;
    const void *bias = y && l->bias ? rows_at(device, l->bias, l->y_type, 1, l->out, l->out, said) : NULL;
    if (!y || (l->bias && !bias))
        return ITH_ERR_INTERNAL;
    double *spread = fake_spread_weights(w, l->type, l->out, l->in);
    if (!spread) {
        snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
        return ITH_ERR_MEMORY;
    }
    for (int64_t row = 0; row < l->rows; row++)
        for (int64_t column = 0; column < l->out; column += FAKE_TOGETHER)
            sum_columns(l, row, column, x, spread + column * l->in, bias, y);
    free(spread);
    return ITH_OK;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* The arrays of an update, at addresses that this module can access. */
typedef struct update_arrays {
    float *x;
    const void *y;
    const float *gate, *a, *b;
    void *n;
} update_arrays;

static const float *vectors_at(struct ith_device *device, const ith_device_row_update *u, ith_device_vectors vectors,
                               char *said)
{
    const int64_t times = (u->rows + u->share - 1) / u->share * (u->known ? 2 : 1);
    return rows_at(device, vectors.first, ITH_F32, times, u->dim, vectors.stride, said);
}

static bool reach(struct ith_device *device, const ith_device_row_update *u, update_arrays *r, char *said)
{
    *r = (update_arrays){.x = rows_at(device, u->x, ITH_F32, u->rows, u->dim, u->dim, said)};
    bool reached = r->x != NULL;
    if (reached && u->y)
        reached = (r->y = rows_at(device, u->y, u->y_type, u->rows, u->dim, u->y_stride, said)) != NULL;
    if (reached && u->y && u->gate.first)
        reached = (r->gate = vectors_at(device, u, u->gate, said)) != NULL;
    if (reached && u->n)
        reached = (r->n = rows_at(device, u->n, u->n_type, u->rows, u->dim, u->n_stride, said)) != NULL;
    if (reached && u->n && u->normed)
        reached = (r->a = vectors_at(device, u, u->a, said)) && (r->b = vectors_at(device, u, u->b, said));
    return reached;
}

static void update_row(const ith_device_row_update *u, const update_arrays *r, int64_t row)
{
    const int64_t entry = row / u->share, dim = u->dim;
    const int64_t time = u->known ? 2 * entry + (u->begin + row % u->share < u->known) : entry;
    float *x = r->x + row * dim;
    double mean = 0, var = 0;
    for (int64_t i = 0; i < dim; i++) {
        if (r->y)
            x[i] += (r->gate ? r->gate[time * u->gate.stride + i] : 1.0f) *
                    (float)get(r->y, u->y_type, row * u->y_stride + i);
        mean += (double)x[i] / (double)dim;
    }
    for (int64_t i = 0; i < dim; i++)
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)dim;
    for (int64_t i = 0; i < dim && r->n; i++) {
        double n = (double)x[i];
        if (u->normed)
            n = (n - mean) / sqrt(var + (double)u->eps) * (double)r->a[time * u->a.stride + i] +
                (double)r->b[time * u->b.stride + i];
        put(r->n, u->n_type, row * u->n_stride + i, n);
    }
}

ith_status fake_update_rows(struct ith_device *device, const ith_device_row_update *u, char *said)
{
    update_arrays arrays;
    if (!u->rows)
        return ITH_OK;
    if (!reach(device, u, &arrays, said))
        return ITH_ERR_INTERNAL;
    for (int64_t row = 0; row < u->rows; row++)
        update_row(u, &arrays, row);
    return ITH_OK;
}

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

/* Normalises and rotates one vector. */
static void norm_vector(const ith_device_heads *h, void *data, int64_t first, const float *weights,
                        const float *cosines, const float *sines)
{
    const int64_t dim = h->heads * h->head_dim;
    double squares = 0;
    for (int64_t i = 0; i < dim; i++)
        squares += get(data, h->type, first + i) * get(data, h->type, first + i) / (double)dim;
    const double inverse = 1 / sqrt(squares + (double)h->eps);
    for (int64_t i = 0; i < dim; i += 2) {
        const int64_t pair = i % h->head_dim / 2;
        const double even = get(data, h->type, first + i) * inverse * (double)weights[i];
        const double odd = get(data, h->type, first + i + 1) * inverse * (double)weights[i + 1];
        const double cosine = cosines ? (double)cosines[pair] : 1, sine = cosines ? (double)sines[pair] : 0;
        put(data, h->type, first + i, even * cosine - odd * sine);
        put(data, h->type, first + i + 1, even * sine + odd * cosine);
    }
}

ith_status fake_norm_heads(struct ith_device *device, const ith_device_heads *h, char *said)
{
    const int64_t dim = h->heads * h->head_dim, half = h->head_dim / 2;
    const float *weights[2] = {NULL}, *cosines = NULL, *sines = NULL;
    if (!h->rows)
        return ITH_OK;
    void *data = rows_at(device, h->data, h->type, h->rows, h->normed * dim, h->stride, said);
    bool reached = data != NULL;
    for (int i = 0; i < h->normed && reached; i++)
        reached = (weights[i] = rows_at(device, h->weights[i], ITH_F32, 1, dim, dim, said)) != NULL;
    if (reached && h->cosines)
        reached = (cosines = rows_at(device, h->cosines, ITH_F32, h->tokens, half, half, said)) &&
                  (sines = rows_at(device, h->sines, ITH_F32, h->tokens, half, half, said));
    if (!reached)
        return ITH_ERR_INTERNAL;
    for (int64_t row = 0; row < h->rows; row++)
        for (int i = 0; i < h->normed; i++) {
            const int64_t table = row % h->tokens * half;
            norm_vector(h, data, row * h->stride + i * dim, weights[i], cosines ? cosines + table : NULL,
                        sines ? sines + table : NULL);
        }
    return ITH_OK;
}
