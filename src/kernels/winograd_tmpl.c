/* SPDX-License-Identifier: Apache-2.0 */
/* The body of winograd.h in plain C. A file for each instruction set includes it once and defines the table of
 * functions. The compiler vectorises the loops over channels with the flags of that file's folder. Sums and products
 * are rounded one by one, in one order, so the bits do not depend on the width of vectors. */
#include "../base/dtype.h"
#include "winograd.h"

/* A function whose `const` arguments are constants at each call: the compiler makes a version of it for each call. A
 * library without the engine is compiled with ITH_WINOGRAD_ONE_VERSION, because only tests call these functions there:
 * one version takes a tenth of the time to compile. */
#ifdef ITH_WINOGRAD_ONE_VERSION
#define CONSTANTS static
#else
#define CONSTANTS static inline __attribute__((always_inline))
#endif

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

/* Four numbers of one channel: the rows over time of a pixel or of an element of v. With one frame only t0 is used. */
typedef struct times {
    float t0, t1, t2, t3;
} times;

/* Number i of a row of B^T d: in one frame, or in four frames as its four rows over time. */
CONSTANTS times take(const ith_winograd_input *in, int64_t i, const bool wide, const bool adds, const int frames)
{
    float e0 = combine(in->first[0], in->second[0], i, wide, adds);
    if (frames == 1)
        return (times){.t0 = e0};
    float e1 = combine(in->first[1], in->second[1], i, wide, adds);
    float e2 = combine(in->first[2], in->second[2], i, wide, adds);
    float e3 = combine(in->first[3], in->second[3], i, wide, adds);
    return (times){e0 - e2, e1 + e2, e2 - e1, e1 - e3};
}

/* a + factor b */
CONSTANTS times plus(times a, float factor, times b)
{
    return (times){a.t0 + factor * b.t0, a.t1 + factor * b.t1, a.t2 + factor * b.t2, a.t3 + factor * b.t3};
}

/* Writes the numbers of one element of v to the products of its column. */
CONSTANTS void put(float *v, int64_t stride, times x, const int frames)
{
    v[0] = x.t0;
    if (frames == 1)
        return;
    v[stride] = x.t1;
    v[2 * stride] = x.t2;
    v[3 * stride] = x.t3;
}

/* Computes one row of v = B^T d B for a tile 2 pixels wide: first a row of B^T d, then the four columns of v. In this
 * order no more than two of the four pixels are needed at once, whose numbers stay in registers. */
CONSTANTS void input_tile_2(const ith_winograd_input *in, int64_t t, const bool wide, const bool adds, const int frames)
{
    const int64_t n = in->channels, stride = in->product_stride, pixels = 2 * t * n;
    const ith_winograd_input from = *in;
    float *v0 = in->v + t * in->tile_stride, *v1 = v0 + frames * stride, *v2 = v1 + frames * stride,
          *v3 = v2 + frames * stride;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        times d2 = take(&from, pixels + 2 * n + c, wide, adds, frames);
        put(v0 + c, stride, plus(take(&from, pixels + c, wide, adds, frames), -1, d2), frames);
        times d1 = take(&from, pixels + n + c, wide, adds, frames);
        put(v1 + c, stride, plus(d1, 1, d2), frames);
        put(v2 + c, stride, plus(d2, -1, d1), frames);
        put(v3 + c, stride, plus(d1, -1, take(&from, pixels + 3 * n + c, wide, adds, frames)), frames);
    }
}

/* The same for a tile 4 pixels wide, with six columns of v. */
CONSTANTS void input_tile_4(const ith_winograd_input *in, int64_t t, const bool wide, const bool adds, const int frames)
{
    const float a = ITH_WINOGRAD_A, b = ITH_WINOGRAD_B;
    const int64_t n = in->channels, stride = in->product_stride, pixels = 4 * t * n;
    const ith_winograd_input from = *in;
    float *v0 = in->v + t * in->tile_stride, *v1 = v0 + frames * stride, *v2 = v1 + frames * stride,
          *v3 = v2 + frames * stride, *v4 = v3 + frames * stride, *v5 = v4 + frames * stride;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        times d2 = take(&from, pixels + 2 * n + c, wide, adds, frames);
        times d4 = take(&from, pixels + 4 * n + c, wide, adds, frames);
        times even_b = plus(d4, -b * b, d2), even_a = plus(d4, -a * a, d2);
        times before = plus(d2, -a * a, take(&from, pixels + c, wide, adds, frames));
        put(v0 + c, stride, plus(even_a, -b * b, before), frames);
        times d1 = take(&from, pixels + n + c, wide, adds, frames);
        times d3 = take(&from, pixels + 3 * n + c, wide, adds, frames);
        times odd_b = plus(d3, -b * b, d1), odd_a = plus(d3, -a * a, d1);
        put(v1 + c, stride, plus(even_b, a, odd_b), frames);
        put(v2 + c, stride, plus(even_b, -a, odd_b), frames);
        put(v3 + c, stride, plus(even_a, b, odd_a), frames);
        put(v4 + c, stride, plus(even_a, -b, odd_a), frames);
        times behind = plus(take(&from, pixels + 5 * n + c, wide, adds, frames), -a * a, d3);
        put(v5 + c, stride, plus(behind, -b * b, odd_a), frames);
    }
}

CONSTANTS void input_tiles(const ith_winograd_input *in, const bool wide, const bool adds)
{
    for (int64_t t = 0; t < in->tiles; t++) {
        if (in->width == 2 && in->frames == 1)
            input_tile_2(in, t, wide, adds, 1);
        else if (in->width == 2)
            input_tile_2(in, t, wide, adds, 4);
        else if (in->frames == 1)
            input_tile_4(in, t, wide, adds, 1);
        else
            input_tile_4(in, t, wide, adds, 4);
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

/* Adds z, an element of row `row` of (u * v) A, to a pixel of the upper row and the pixel below it, with the signs of
 * A^T. */
CONSTANTS void add(float *upper, float *lower, float bias, float z, const int row)
{
    if (row == 0)
        *upper = bias + z;
    else if (row < 3)
        *upper += z;
    if (row == 1)
        *lower = bias + z;
    else if (row > 1)
        *lower -= z;
}

/* One row of (u * v) A for one tile 2 pixels wide and one frame. */
CONSTANTS void output_tile_2(const ith_winograd_output *out, int64_t t, const int frames, const int frame,
                             const int row)
{
    const int64_t n = out->channels, stride = out->product_stride;
    const float *m = out->m + t * n, *bias = out->bias;
    float *upper = out->upper[frame] + 2 * t * n, *lower = out->lower[frame] + 2 * t * n;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        float m1 = element(m, stride, 1, c, frames, frame), m2 = element(m, stride, 2, c, frames, frame);
        add(upper + c, lower + c, bias[c], element(m, stride, 0, c, frames, frame) + m1 + m2, row);
        add(upper + n + c, lower + n + c, bias[c], m1 - m2 - element(m, stride, 3, c, frames, frame), row);
    }
}

/* The same for a tile 4 pixels wide. */
CONSTANTS void output_tile_4(const ith_winograd_output *out, int64_t t, const int frames, const int frame,
                             const int row)
{
    const float a = ITH_WINOGRAD_A, b = ITH_WINOGRAD_B;
    const int64_t n = out->channels, stride = out->product_stride;
    const float *m = out->m + t * n, *bias = out->bias;
    float *upper = out->upper[frame] + 4 * t * n, *lower = out->lower[frame] + 4 * t * n;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        float m1 = element(m, stride, 1, c, frames, frame), m2 = element(m, stride, 2, c, frames, frame);
        float m3 = element(m, stride, 3, c, frames, frame), m4 = element(m, stride, 4, c, frames, frame);
        float even_a = m1 + m2, odd_a = m1 - m2, even_b = m3 + m4, odd_b = m3 - m4;
        float z0 = element(m, stride, 0, c, frames, frame) + even_a + even_b;
        float z3 = a * a * a * odd_a + b * b * b * odd_b + element(m, stride, 5, c, frames, frame);
        add(upper + c, lower + c, bias[c], z0, row);
        add(upper + n + c, lower + n + c, bias[c], a * odd_a + b * odd_b, row);
        add(upper + 2 * n + c, lower + 2 * n + c, bias[c], a * a * even_a + b * b * even_b, row);
        add(upper + 3 * n + c, lower + 3 * n + c, bias[c], z3, row);
    }
}

CONSTANTS void output_tile(const ith_winograd_output *out, int64_t t, const int row)
{
    for (int frame = 0; frame < out->frames; frame++) {
        if (out->width == 2 && out->frames == 1)
            output_tile_2(out, t, 1, 0, row);
        else if (out->width == 2 && frame == 0)
            output_tile_2(out, t, 2, 0, row);
        else if (out->width == 2)
            output_tile_2(out, t, 2, 1, row);
        else if (out->frames == 1)
            output_tile_4(out, t, 1, 0, row);
        else if (frame == 0)
            output_tile_4(out, t, 2, 0, row);
        else
            output_tile_4(out, t, 2, 1, row);
    }
}

static void output(const ith_winograd_output *out)
{
    for (int64_t t = 0; t < out->tiles; t++)
        switch (out->row) {
        case 0: output_tile(out, t, 0); break;
        case 1: output_tile(out, t, 1); break;
        case 2: output_tile(out, t, 2); break;
        default: output_tile(out, t, 3);
        }
}

#define ITH_WINOGRAD_TABLE(isa)                                                                                        \
    {                                                                                                                  \
        .name = isa, .input = input, .output = output                                                                  \
    }
