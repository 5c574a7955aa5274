/* SPDX-License-Identifier: Apache-2.0 */
/* The body of winograd.h in plain C. A file for each instruction set includes it once and defines the table of
 * functions. The compiler vectorises the loops over channels with the flags of that file's folder. There are only sums,
 * in one order, so the bits do not depend on the width of vectors. */
#include "../base/dtype.h"
#include "winograd.h"

/* Computes one row of v = B^T d B for one tile: first a row of B^T d from the rows of pixels `first` and `second`, then
 * the four columns of v. widen(x, i) is number i of x as a float; combine(a, b) is a + b or a - b. */
#define TRANSFORM_TILE(type, widen, combine)                                                                           \
    {                                                                                                                  \
        const type *a = (const type *)in->first + 2 * t * n, *b = (const type *)in->second + 2 * t * n;                \
        float *v0 = in->v + t * in->tile_stride, *v1 = v0 + in->product_stride, *v2 = v1 + in->product_stride,         \
              *v3 = v2 + in->product_stride;                                                                           \
        _Pragma("omp simd") for (int64_t c = 0; c < n; c++)                                                            \
        {                                                                                                              \
            float e0 = combine(widen(a, c), widen(b, c)), e1 = combine(widen(a, n + c), widen(b, n + c));              \
            float e2 = combine(widen(a, 2 * n + c), widen(b, 2 * n + c));                                              \
            float e3 = combine(widen(a, 3 * n + c), widen(b, 3 * n + c));                                              \
            v0[c] = e0 - e2;                                                                                           \
            v1[c] = e1 + e2;                                                                                           \
            v2[c] = e2 - e1;                                                                                           \
            v3[c] = e1 - e3;                                                                                           \
        }                                                                                                              \
    }
#define WIDEN_F32(x, i) (x)[i]
#define WIDEN_BF16(x, i) ith_f32_from_bf16((x)[i])
#define PLUS(a, b) ((a) + (b))
#define MINUS(a, b) ((a) - (b))

static void input(const ith_winograd_input *in)
{
    const int64_t n = in->channels;
    for (int64_t t = 0; t < in->tiles; t++) {
        if (in->dtype == ITH_F32 && in->adds)
            TRANSFORM_TILE(float, WIDEN_F32, PLUS)
        else if (in->dtype == ITH_F32)
            TRANSFORM_TILE(float, WIDEN_F32, MINUS)
        else if (in->adds)
            TRANSFORM_TILE(uint16_t, WIDEN_BF16, PLUS)
        else
            TRANSFORM_TILE(uint16_t, WIDEN_BF16, MINUS)
    }
}

/* One row of (u * v) A for one tile: z0 and z1 are added to the left and right pixels, with the signs of A^T. */
static void output_tile(const ith_winograd_output *out, int64_t t, float *upper, float *lower)
{
    const int64_t n = out->channels;
    const float *m0 = out->m + t * n, *m1 = m0 + out->product_stride, *m2 = m1 + out->product_stride,
                *m3 = m2 + out->product_stride;
#define EACH_CHANNEL(statements)                                                                                       \
    _Pragma("omp simd") for (int64_t c = 0; c < n; c++)                                                                \
    {                                                                                                                  \
        float z0 = m0[c] + m1[c] + m2[c], z1 = m1[c] - m2[c] - m3[c];                                                  \
        statements                                                                                                     \
    }
    const float *bias = out->bias;
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
    for (int64_t t = 0; t < out->tiles; t++)
        output_tile(out, t, out->upper + 2 * t * out->channels, out->lower + 2 * t * out->channels);
}

#define ITH_WINOGRAD_TABLE(isa)                                                                                        \
    {                                                                                                                  \
        .name = isa, .input = input, .output = output                                                                  \
    }
