/* SPDX-License-Identifier: Apache-2.0 */
/* The body of winograd.h in plain C. A file for each instruction set includes it once and defines the table of
 * functions. The compiler vectorises the loops over channels with the flags of that file's folder. There are only sums,
 * in one order, so the bits do not depend on the width of vectors. */
#include "../base/dtype.h"
#include "winograd.h"

#define CONSTANTS static inline __attribute__((always_inline)) /* a function whose bool arguments are constants */

/* Number i of x as a float. */
CONSTANTS float number(const void *x, int64_t i, const bool wide)
{
    return wide ? ((const float *)x)[i] : ith_f32_from_bf16(((const uint16_t *)x)[i]);
}

/* Number i of a row of B^T d. */
CONSTANTS float combine(const void *first, const void *second, int64_t i, const bool wide, const bool adds)
{
    return adds ? number(first, i, wide) + number(second, i, wide) : number(first, i, wide) - number(second, i, wide);
}

/* Computes one row of v = B^T d B for one tile: first a row of B^T d, then the four columns of v. */
CONSTANTS void input_tile(const ith_winograd_input *in, int64_t t, const bool wide, const bool adds)
{
    const int64_t n = in->channels, pixels = 2 * t * n;
    const void *a = in->first[0], *b = in->second[0];
    float *v0 = in->v + t * in->tile_stride, *v1 = v0 + in->product_stride, *v2 = v1 + in->product_stride,
          *v3 = v2 + in->product_stride;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        float e0 = combine(a, b, pixels + c, wide, adds), e1 = combine(a, b, pixels + n + c, wide, adds);
        float e2 = combine(a, b, pixels + 2 * n + c, wide, adds), e3 = combine(a, b, pixels + 3 * n + c, wide, adds);
        v0[c] = e0 - e2;
        v1[c] = e1 + e2;
        v2[c] = e2 - e1;
        v3[c] = e1 - e3;
    }
}

/* Four numbers of one channel: the rows over time of a pixel or of an element of v. */
typedef struct times {
    float t0, t1, t2, t3;
} times;

/* Number i of a row of B^T d in four frames, and then its four rows over time. */
CONSTANTS times combine_time(const ith_winograd_input *in, int64_t i, const bool wide, const bool adds)
{
    float e0 = combine(in->first[0], in->second[0], i, wide, adds);
    float e1 = combine(in->first[1], in->second[1], i, wide, adds);
    float e2 = combine(in->first[2], in->second[2], i, wide, adds);
    float e3 = combine(in->first[3], in->second[3], i, wide, adds);
    return (times){e0 - e2, e1 + e2, e2 - e1, e1 - e3};
}

/* Writes the sums a + b, or the differences a - b, to four products. */
CONSTANTS void put_times(float *v, int64_t stride, times a, times b, const bool sums)
{
    v[0] = sums ? a.t0 + b.t0 : a.t0 - b.t0;
    v[stride] = sums ? a.t1 + b.t1 : a.t1 - b.t1;
    v[2 * stride] = sums ? a.t2 + b.t2 : a.t2 - b.t2;
    v[3 * stride] = sums ? a.t3 + b.t3 : a.t3 - b.t3;
}

/* Computes one row of v for one tile and four frames: the rows over time of each of the four pixels, then the columns.
 * In this order no more than eight of the sixteen numbers are needed at once, which stay in registers. */
CONSTANTS void input_times(const ith_winograd_input *in, int64_t t, const bool wide, const bool adds)
{
    const int64_t n = in->channels, stride = in->product_stride, pixels = 2 * t * n;
    float *v0 = in->v + t * in->tile_stride, *v1 = v0 + 4 * stride, *v2 = v1 + 4 * stride, *v3 = v2 + 4 * stride;
    const ith_winograd_input from = *in;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        times d2 = combine_time(&from, pixels + 2 * n + c, wide, adds);
        put_times(v0 + c, stride, combine_time(&from, pixels + c, wide, adds), d2, false);
        times d1 = combine_time(&from, pixels + n + c, wide, adds);
        put_times(v1 + c, stride, d1, d2, true);
        put_times(v2 + c, stride, d2, d1, false);
        put_times(v3 + c, stride, d1, combine_time(&from, pixels + 3 * n + c, wide, adds), false);
    }
}

CONSTANTS void input_tiles(const ith_winograd_input *in, const bool wide, const bool adds)
{
    for (int64_t t = 0; t < in->tiles; t++) {
        if (in->frames == 1) {
            input_tile(in, t, wide, adds);
            continue;
        }
        input_times(in, t, wide, adds);
    }
}

static void input(const ith_winograd_input *in)
{
    if (in->dtype == ITH_F32 && in->adds)
        input_tiles(in, true, true);
    else if (in->dtype == ITH_F32)
        input_tiles(in, true, false);
    else if (in->adds)
        input_tiles(in, false, true);
    else
        input_tiles(in, false, false);
}

/* Number c of column j of a row of u * v, for frame `frame` of the output: with several frames, element `frame` of A^T
 * m over time. */
CONSTANTS float element(const float *m, int64_t stride, int64_t j, int64_t c, const int frames, const int frame)
{
    const float *x = m + j * (frames == 1 ? 1 : 4) * stride + c;
    if (frames == 1)
        return x[0];
    return frame ? x[stride] - x[2 * stride] - x[3 * stride] : x[0] + x[stride] + x[2 * stride];
}

/* One row of (u * v) A for one tile and one frame: z0 and z1 are added to the left and right pixels, with the signs of
 * A^T. */
CONSTANTS void output_tile(const ith_winograd_output *out, int64_t t, const int frames, const int frame)
{
    const int64_t n = out->channels, stride = out->product_stride;
    const float *m = out->m + t * n, *bias = out->bias;
    float *upper = out->upper[frame] + 2 * t * n, *lower = out->lower[frame] + 2 * t * n;
#define EACH_CHANNEL(statements)                                                                                       \
    _Pragma("omp simd") for (int64_t c = 0; c < n; c++)                                                                \
    {                                                                                                                  \
        float m1 = element(m, stride, 1, c, frames, frame), m2 = element(m, stride, 2, c, frames, frame);              \
        float z0 = element(m, stride, 0, c, frames, frame) + m1 + m2;                                                  \
        float z1 = m1 - m2 - element(m, stride, 3, c, frames, frame);                                                  \
        statements                                                                                                     \
    }
    switch (out->row) {
    case 0: EACH_CHANNEL(upper[c] = bias[c] + z0; upper[n + c] = bias[c] + z1;) break;
    case 1:
        EACH_CHANNEL(upper[c] += z0; upper[n + c] += z1; lower[c] = bias[c] + z0; lower[n + c] = bias[c] + z1;)
        break;
    case 2: EACH_CHANNEL(upper[c] += z0; upper[n + c] += z1; lower[c] -= z0; lower[n + c] -= z1;) break;
    default: EACH_CHANNEL(lower[c] -= z0; lower[n + c] -= z1;)
    }
}

static void output(const ith_winograd_output *out)
{
    for (int64_t t = 0; t < out->tiles; t++) {
        if (out->frames == 1) {
            output_tile(out, t, 1, 0);
            continue;
        }
        output_tile(out, t, 2, 0);
        output_tile(out, t, 2, 1);
    }
}

#define ITH_WINOGRAD_TABLE(isa)                                                                                        \
    {                                                                                                                  \
        .name = isa, .input = input, .output = output                                                                  \
    }
