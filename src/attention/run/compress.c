/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds vectors for messages and restores them (compress.h). */
#include "compress.h"

#include "../../base/dtype.h"
#include "../../base/parallel.h"
#include "../../base/size.h"

#include <float.h>
#include <math.h>

#define MOST_LEVEL 127.0f /* the largest number of 8 bits */
#define PIECE 256         /* numbers that are converted together */
#define PARTS 64          /* parts of a region, which are shared out among the threads */

/* The largest absolute value of a vector; NaN if the vector has a NaN. */
static float largest_of(const char *x, ith_dtype type, int64_t count)
{
    float piece[PIECE], largest = 0;
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t n = ith_min64(PIECE, count - i);
        ith_to_f32(piece, x + i * ith_dtype_bytes(type), type, n);
        for (int64_t j = 0; j < n; j++)
            if (fabsf(piece[j]) > largest || isnan(piece[j]))
                largest = fabsf(piece[j]);
    }
    return largest;
}

static void add_errors(ith_compress_error *sums, const float *x, const float *arrived, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double difference = (double)x[i] - (double)arrived[i];
        sums->error += difference * difference;
        sums->norm += (double)x[i] * (double)x[i];
    }
}

/* The scale of a vector; NaN if a number is not finite. It is largest / MOST_LEVEL, or the next f32 in two cases. Near
 * the smallest numbers of f32 the quotient may be rounded down so far that the largest level would exceed MOST_LEVEL.
 * Near the largest numbers it may be rounded up, so that scale * MOST_LEVEL would be an infinity. */
static float scale_of(const char *x, ith_dtype type, int64_t count)
{
    float largest = largest_of(x, type, count), scale = largest / MOST_LEVEL;
    if (!isfinite(scale))
        return NAN;
    if (largest > 0 && rintf(largest / scale) > MOST_LEVEL)
        return nextafterf(scale, INFINITY);
    return (double)scale * MOST_LEVEL > FLT_MAX ? nextafterf(scale, 0) : scale;
}

/* One vector as a scale and numbers of 8 bits. */
static void round_to_levels(const char *x, ith_dtype type, int64_t count, char *to, ith_compress_error *sums)
{
    float piece[PIECE], arrived[PIECE], scale = scale_of(x, type, count);
    memcpy(to, &scale, sizeof scale);
    int8_t *levels = (int8_t *)to + sizeof scale;
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t n = ith_min64(PIECE, count - i);
        ith_to_f32(piece, x + i * ith_dtype_bytes(type), type, n);
        for (int64_t j = 0; j < n; j++) {
            levels[i + j] = scale > 0 ? (int8_t)rintf(piece[j] / scale) : 0;
            arrived[j] = scale * (float)levels[i + j];
        }
        add_errors(sums, piece, arrived, n);
    }
}

static void restore_levels(const char *from, int64_t count, ith_dtype type, char *x)
{
    float piece[PIECE], scale;
    memcpy(&scale, from, sizeof scale);
    const int8_t *levels = (const int8_t *)from + sizeof scale;
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t n = ith_min64(PIECE, count - i);
        for (int64_t j = 0; j < n; j++)
            piece[j] = scale * (float)levels[i + j];
        ith_from_f32(x + i * ith_dtype_bytes(type), type, piece, n);
    }
}

/* One vector of f32 as bf16. */
static void round_to_bf16(const float *x, int64_t count, uint16_t *to, ith_compress_error *sums)
{
    float arrived[PIECE];
    ith_from_f32(to, ITH_BF16, x, count);
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t n = ith_min64(PIECE, count - i);
        ith_to_f32(arrived, to + i, ITH_BF16, n);
        add_errors(sums, x + i, arrived, n);
    }
}

/* Compresses one vector, or restores it. The bytes after its numbers are zeros (ith_travel_bytes rounds up). */
static void code_vector(const ith_attn_setting *s, ith_attn_tensor tensor, char *memory, char *message, bool restores,
                        ith_compress_error *sums)
{
    const int64_t count = s->problem.head_dim;
    const ith_dtype type = s->problem.dtype;
    const int64_t bytes = ith_travel_bytes(s, tensor);
    const bool levels = s->compress == ITH_COMPRESS_8BIT && tensor == ITH_TENSOR_V;
    const int64_t used = levels ? (int64_t)sizeof(float) + count : count * (int64_t)sizeof(uint16_t);
    if (bytes == count * s->element_bytes) {
        memcpy(restores ? memory : message, restores ? message : memory, (size_t)bytes);
        return;
    }
    if (!restores)
        memset(message + used, 0, (size_t)(bytes - used));
    if (levels && restores)
        restore_levels(message, count, type, memory);
    else if (levels)
        round_to_levels(memory, type, count, message, sums);
    else if (restores)
        ith_to_f32((float *)(void *)memory, message, ITH_BF16, count);
    else
        round_to_bf16((const float *)(const void *)memory, count, (uint16_t *)(void *)message, sums);
}

/* A region that all threads of the rank compress or restore together. */
typedef struct coding {
    const ith_attn_setting *setting;
    ith_attn_tensor tensor;
    const ith_region *region;
    char *message;
    bool restores;
    int64_t vectors, of_row; /* number of vectors of the region, and of one of its rows */
    ith_compress_error sums[PARTS];
} coding;

static void code_part(coding *c, int part)
{
    int64_t begin, count;
    ith_share(c->vectors, PARTS, part, &begin, &count);
    const int64_t vector = c->setting->problem.head_dim * c->setting->element_bytes;
    const int64_t travels = ith_travel_bytes(c->setting, c->tensor);
    for (int64_t i = begin; i < begin + count; i++)
        code_vector(c->setting, c->tensor,
                    (char *)c->region->data + i / c->of_row * c->region->stride[0] + i % c->of_row * vector,
                    c->message + i * travels, c->restores, &c->sums[part]);
}

static void code_in_thread(void *user, int thread)
{
    coding *c = user;
    int64_t begin, count;
    ith_share(PARTS, c->setting->threads, thread, &begin, &count);
    for (int64_t part = begin; part < begin + count && !ith_halted(c->setting->halt); part++)
        code_part(c, (int)part);
}

/* Compresses or restores all vectors of a region. Returns the bytes of the message. Sums are made for each part, and
 * then added in the order of the parts, so that they do not depend on the number of threads. */
static int64_t code_region(const ith_attn_setting *s, ith_attn_tensor tensor, const ith_region *region, char *message,
                           bool restores, ith_compress_error *sums)
{
    const int64_t of_row = region->bytes / (s->problem.head_dim * s->element_bytes);
    coding c = {.setting = s,
                .tensor = tensor,
                .region = region,
                .message = message,
                .restores = restores,
                .vectors = region->count[0] * of_row,
                .of_row = of_row};
    ith_parallel(s->context, s->threads, code_in_thread, &c);
    for (int part = 0; part < PARTS && sums; part++)
        sums->error += c.sums[part].error, sums->norm += c.sums[part].norm;
    return c.vectors * ith_travel_bytes(s, tensor);
}

int64_t ith_compress_region(const ith_attn_setting *s, ith_attn_tensor tensor, const ith_region *region, char *to,
                            ith_compress_error *sums)
{
    return code_region(s, tensor, region, to, false, sums);
}

void ith_decompress_region(const ith_attn_setting *s, ith_attn_tensor tensor, const char *from,
                           const ith_region *region)
{
    code_region(s, tensor, region, (char *)from, true, NULL);
}
