/* SPDX-License-Identifier: Apache-2.0 */
/* Random rows of heads for the tests of a device module: on the device, and as numbers on the host. */
#ifndef ITH_TESTS_GPU_ROWS_H
#define ITH_TESTS_GPU_ROWS_H

#include "gpu_test.h"

#include "base/dtype.h"
#include "support/random.h"

#include <math.h>

/* The most heads of a call, and about the most numbers of a tensor. */
enum { GPU_HEADS_MAX = 32, GPU_NUMBERS_MAX = 400000 };

/* Heads [first, first + count) of a tensor, with `heads` heads in each batch entry, and their absent keys. The tensor
 * has heads from tensor_first on, tensor_heads in each batch entry. Strides and offset are in numbers. */
typedef struct gpu_heads {
    ith_dtype dtype;
    int64_t number; /* bytes */
    int64_t head_dim, rows, heads, first, count;
    int64_t tensor_first, tensor_heads, row_stride, batch_stride, offset, numbers;
    unsigned char *bits; /* [numbers] on the host */
    float *values;       /* [numbers], the same as f32 */
    gpu_buffer data;
    int64_t entries, bias_stride;
    int32_t *keys; /* [entries]; NULL: all rows are keys */
    float *bias;   /* [entries, bias_stride]; NULL: none */
    gpu_buffer keys_buffer, bias_buffer;
    const int32_t *keys_data; /* on the device, or NULL */
    const float *bias_data;
} gpu_heads;

/* The place of number d of a row. */
static int64_t gpu_place(const gpu_heads *h, int64_t head, int64_t row, int64_t d)
{
    int64_t n = h->first + head - h->tensor_first;
    return n / h->tensor_heads * h->batch_stride + row * h->row_stride + n % h->tensor_heads * h->head_dim + d;
}

static double gpu_number(const gpu_heads *h, int64_t head, int64_t row, int64_t d)
{
    return (double)h->values[gpu_place(h, head, row, d)];
}

static const void *gpu_row(const gpu_heads *h, int64_t head, int64_t row)
{
    return h->bits + gpu_place(h, head, row, 0) * h->number;
}

/* The keys of a head's batch entry, the bias of one of its keys, and whether a row has a key. */
static int64_t gpu_keys(const gpu_heads *h, int64_t head)
{
    return h->keys ? h->keys[(h->first + head) / h->heads] : h->rows;
}

static float gpu_bias(const gpu_heads *h, int64_t head, int64_t row)
{
    return h->bias ? h->bias[(h->first + head) / h->heads * h->bias_stride + row] : 0;
}

static bool gpu_has_key(const gpu_heads *h, int64_t head, int64_t row)
{
    return row < gpu_keys(h, head) && gpu_bias(h, head, row) != -INFINITY;
}

static ith_device_rows gpu_rows_of(const gpu_heads *h)
{
    return (ith_device_rows){h->data.data + h->offset * h->number, h->tensor_first, h->tensor_heads, h->row_stride,
                             h->batch_stride};
}

/* |x|^2 in float64. */
static double gpu_square(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* The sizes of a case in words. */
static const char *gpu_describe(const gpu_heads *h)
{
    static char text[256];
    snprintf(text, sizeof text, "%s, head_dim %ld, %ld rows, heads %ld+%ld of %ld, row_stride %ld, offset %ld%s%s",
             h->dtype == ITH_F32    ? "f32"
             : h->dtype == ITH_BF16 ? "bf16"
                                    : "f16",
             (long)h->head_dim, (long)h->rows, (long)h->first, (long)h->count, (long)h->heads, (long)h->row_stride,
             (long)h->offset, h->keys ? ", keys" : "", h->bias ? ", bias" : "");
    return text;
}

/* Copies the numbers to the device, to `offset` numbers after an address that is aligned to 256 bytes. */
static void gpu_place_data(gpu_heads *h, int64_t offset)
{
    if (h->data.whole)
        gpu_free(&h->data);
    h->offset = offset;
    h->data = gpu_poisoned((h->numbers + offset) * h->number);
    GPU_OK(gpu_module->copy(gpu_stream, h->data.data + offset * h->number, h->bits, h->numbers * h->number, gpu_said));
    gpu_wait();
}

/* Moves the rows to another alignment. */
static void gpu_move(gpu_heads *h)
{
    gpu_place_data(h, h->offset ? 0 : 1);
}

/* Leaves out row 0. */
static void gpu_skip_row(gpu_heads *h)
{
    h->offset += h->row_stride;
    h->rows--;
}

/* Changes one number of a head, on the host and on the device. */
static void gpu_set_number(gpu_heads *h, int64_t head, int64_t row, int64_t d, float value)
{
    int64_t place = gpu_place(h, head, row, d);
    h->values[place] = value;
    ith_from_f32(h->bits + place * h->number, h->dtype, &value, 1);
    GPU_OK(gpu_module->copy(gpu_stream, h->data.data + (h->offset + place) * h->number, h->bits + place * h->number,
                            h->number, gpu_said));
    gpu_wait();
}

/* ---- Random cases ---------------------------------------------------------------------------------------------- */

static void gpu_draw_sizes(gpu_heads *h, uint64_t *seed, int index)
{
    static const int64_t dims[] = {128, 64, 1,   2,   3,   7,   8,   16,   24,   40,   72,
                                   80,  96, 100, 127, 129, 256, 257, 1000, 5000, 65536};
    static const int64_t rows[] = {0, 1, 2, 3, 63, 64, 65, 511, 512, 513, 1024, 1500};
    static const ith_dtype types[] = {ITH_BF16, ITH_F16, ITH_F32};
    h->dtype = types[index % 3];
    h->number = h->dtype == ITH_F32 ? 4 : 2;
    h->head_dim = dims[index / 3 % (int)(sizeof dims / sizeof *dims)];
    h->rows = rows[random_below(seed, sizeof rows / sizeof *rows)];
    h->entries = random_between(seed, 1, 3);
    h->heads = random_between(seed, 1, 5);
    if (random_below(seed, 2)) { /* all heads of all batch entries */
        h->tensor_heads = h->heads;
        h->first = random_between(seed, 0, h->entries * h->heads - 1);
        h->count = random_between(seed, 1, h->entries * h->heads - h->first);
    } else { /* some heads of one batch entry */
        int64_t entry = random_between(seed, 0, h->entries - 1), head = random_between(seed, 0, h->heads - 1);
        h->tensor_first = entry * h->heads + head;
        h->tensor_heads = random_between(seed, 1, h->heads - head);
        h->first = h->tensor_first + random_between(seed, 0, h->tensor_heads - 1);
        h->count = random_between(seed, 1, h->tensor_first + h->tensor_heads - h->first);
    }
    while (h->rows > 3 && h->rows * h->tensor_heads * h->head_dim * h->entries > GPU_NUMBERS_MAX)
        h->rows /= 2;
}

/* Draws strides and numbers. Each column has another mean. In a few cases the numbers are so small that squares
 * underflow. Rows without a key are NaN. */
static void gpu_draw_numbers(gpu_heads *h, uint64_t *seed)
{
    static const int64_t gaps[] = {0, 0, 8, 1};
    const float scale = random_below(seed, 8) == 0 && h->dtype != ITH_F16 ? 1e-21f : 1.0f;
    h->row_stride = h->tensor_heads * h->head_dim + gaps[random_below(seed, 4)];
    h->batch_stride = h->rows * h->row_stride + gaps[random_below(seed, 4)];
    h->numbers = h->entries * h->batch_stride + 8;
    h->bits = malloc((size_t)(h->numbers * h->number));
    h->values = malloc((size_t)h->numbers * sizeof *h->values);
    for (int64_t i = 0; i < h->numbers; i++)
        h->values[i] = scale * (2 * random_signed(seed) + (float)(i % 5));
    for (int64_t head = 0; head < h->count; head++)
        for (int64_t row = 0; row < h->rows; row++)
            for (int64_t d = 0; !gpu_has_key(h, head, row) && d < h->head_dim; d++)
                h->values[gpu_place(h, head, row, d)] = NAN;
    ith_from_f32(h->bits, h->dtype, h->values, h->numbers);
    ith_to_f32(h->values, h->bits, h->dtype, h->numbers);
    gpu_place_data(h, random_below(seed, 3) ? 0 : 1);
}

/* Draws which keys are absent. */
static void gpu_draw_keys(gpu_heads *h, uint64_t *seed)
{
    if (random_below(seed, 2)) {
        h->keys = malloc((size_t)h->entries * sizeof *h->keys);
        for (int64_t i = 0; i < h->entries; i++)
            h->keys[i] = (int32_t)random_between(seed, 0, h->rows);
        h->keys_buffer = gpu_upload(h->keys, h->entries * (int64_t)sizeof *h->keys);
        h->keys_data = (const int32_t *)h->keys_buffer.data;
    }
    const uint32_t kind = random_below(seed, 4); /* none, 0 and -inf, any number */
    h->bias_stride = h->rows + random_below(seed, 5);
    if (kind < 2)
        return;
    h->bias = malloc((size_t)(h->entries * h->bias_stride) * sizeof *h->bias + 1);
    for (int64_t i = 0; i < h->entries * h->bias_stride; i++)
        h->bias[i] = random_below(seed, 3) == 0 ? -INFINITY : kind == 2 ? 0 : random_signed(seed);
    h->bias_buffer = gpu_upload(h->bias, h->entries * h->bias_stride * (int64_t)sizeof *h->bias);
    h->bias_data = (const float *)h->bias_buffer.data;
}

/* Case number `index`. with_keys: some rows may be absent keys. */
static gpu_heads gpu_random_heads(uint64_t *seed, int index, bool with_keys)
{
    gpu_heads h = {0};
    gpu_draw_sizes(&h, seed, index);
    if (with_keys)
        gpu_draw_keys(&h, seed);
    gpu_draw_numbers(&h, seed);
    return h;
}

/* Makes values for keys: the same heads and rows, with other numbers and strides. The values use the arrays of absent
 * keys of `keys`. */
static gpu_heads gpu_like(uint64_t *seed, const gpu_heads *keys)
{
    gpu_heads h = *keys;
    h.data = h.keys_buffer = h.bias_buffer = (gpu_buffer){0};
    gpu_draw_numbers(&h, seed);
    h.keys = NULL;
    h.bias = NULL;
    return h;
}

static void gpu_free_heads(gpu_heads *h)
{
    gpu_free(&h->data);
    gpu_free(&h->keys_buffer);
    gpu_free(&h->bias_buffer);
    free(h->bits);
    free(h->values);
    free(h->keys);
    free(h->bias);
}

#endif
