/* SPDX-License-Identifier: Apache-2.0 */
/* The body of rowops.h in plain C. A file for each instruction set includes it once and defines the table of functions.
 *
 * The compiler vectorises the loops with the flags of that file's folder. No result depends on the width of vectors:
 * sums are SUM_LANES partial sums in double, added up in a fixed order, and no product is fused with a sum. So a row
 * has the same bits on every instruction set. Arrays may be equal (y = x), but must not overlap in part. */
#include "../base/dtype.h"
#include "rowops.h"

#include <math.h>

/* The number of partial sums in the sum over a row. */
#define SUM_LANES 16
#define PIXELS_TOGETHER 8 /* pixels that are normalised together */

/* Bounds of x for e^x, as bits: 104.0f, beyond which e^x is infinite as f32, -104.0f, below which it is 0, and -80.0f.
 * 1 + e^-80 is 1, and e^-80 is still a normal number: processors take many times as long for subnormal ones. */
#define HIGHEST 0x42d00000
#define LOWEST 0xc2d00000u
#define LOWEST_BESIDE_ONE 0xc2a00000u

#define FARTHEST 0x41480000 /* 12.5f as bits, beyond which gelu_f32 takes Phi(-x) for 0: it is 4e-36 there */

/* Returns e^x with an error of at most 1.1 ulp, subnormal results included; a number if x is NaN. Below the number with
 * the bits `lowest`, x counts as that number. With x = n ln 2 + r and |r| <= ln 2 / 2, e^x = 2^n e^r. ln 2 is
 * subtracted in two parts, the first short enough that n times it is exact. e^r = 1 + r + r^2 q(r), where q is the
 * minimax polynomial of degree 4 (error 4e-9). 2^n is applied in two factors, because neither 2^128 nor 2^-150 is a
 * float.
 *
 * The code compares bits, because comparisons of floats may trap, which keeps gcc from vectorising. The bits of
 * positive floats, as signed numbers, have the order of the floats; the bits of negative floats, as unsigned numbers,
 * have the reverse order. */
static inline float exp_or_number(float x, uint32_t lowest)
{
    /* 1.5 * 2^23: the low bits of the sum x + round_to_integer are the integer nearest to x. */
    const float round_to_integer = 12582912.0f;
    int32_t below = (int32_t)ith_f32_bits(x) > HIGHEST ? HIGHEST : (int32_t)ith_f32_bits(x);
    float near = ith_f32_from_bits((uint32_t)below > lowest ? lowest : (uint32_t)below);
    float shifted = near * 0x1.715476p+0f + round_to_integer;
    int32_t n = (int32_t)(ith_f32_bits(shifted) - ith_f32_bits(round_to_integer));
    float whole = shifted - round_to_integer;
    float r = (near - whole * 0x1.63p-1f) - whole * -2.12194440e-4f;
    float q = 0x1.6a23cep-10f;
    q = q * r + 0x1.123a2p-7f;
    q = q * r + 0x1.5558f2p-5f;
    q = q * r + 0x1.555492p-3f;
    q = q * r + 0x1.fffffcp-2f;
    float e = 1.0f + (r + r * r * q);
    int32_t half = n >> 1;
    float first = ith_f32_from_bits((uint32_t)(half + 127) << 23);
    float second = ith_f32_from_bits((uint32_t)(n - half + 127) << 23);
    return e * first * second;
}

/* Returns e^x; NaN stays NaN. */
static inline float exp_f32(float x)
{
    uint32_t bits = ith_f32_bits(x);
    return exp_or_number(x, LOWEST) + ith_f32_from_bits((bits & 0x7fffffffu) > 0x7f800000u ? bits : 0);
}

/* If x is NaN, so is the quotient. */
static inline float silu_f32(float x)
{
    return x / (1.0f + exp_or_number(-x, LOWEST_BESIDE_ONE));
}

/* Returns 0.5 x (1 + tanh u) as x / (1 + e^-2u), which does not cancel where tanh u is near -1. */
static inline float gelu_tanh_f32(float x)
{
    float two_u = 1.5957691216057308f * (x + 0.044715f * (x * x * x));
    return x / (1.0f + exp_or_number(-two_u, LOWEST_BESIDE_ONE));
}

/* Returns x / (1 + e^(-1.702 x)). */
static inline float gelu_quick_f32(float x)
{
    return x / (1.0f + exp_or_number(-1.702f * x, LOWEST_BESIDE_ONE));
}

/* Returns x Phi(x), where Phi is the distribution function of the normal distribution, as max(x, 0) - y Phi(-y) with
 * y = |x|. Nothing cancels for negative x, and little for positive x, because Phi(-y) is at most 1/2. Phi(-y) =
 * e^(-y^2/2) t q(t) with t = 1 / (1 + 0.3 y), where q is the minimax polynomial of degree 7 for y up to 12.5 (relative
 * error 1e-7). The sign and the size of x are looked at as bits, as in exp_or_number; NaN stays NaN. */
static inline float gelu_f32(float x)
{
    const uint32_t bits = ith_f32_bits(x), size = bits & 0x7fffffffu;
    const float y = ith_f32_from_bits((int32_t)size > FARTHEST ? FARTHEST : size);
    const float t = 1.0f / (1.0f + 0.3f * y);
    float q = 0x1.2ab77ap-5f;
    q = q * t - 0x1.48ba2cp-3f;
    q = q * t + 0x1.b25d06p-3f;
    q = q * t - 0x1.e3630cp-5f;
    q = q * t + 0x1.0d1e52p-3f;
    q = q * t + 0x1.95ac8ap-4f;
    q = q * t + 0x1.ef304cp-4f;
    q = q * t + 0x1.e9f68ep-4f;
    const float below = exp_or_number(-0.5f * y * y, LOWEST_BESIDE_ONE) * (t * q) * y;
    const uint32_t kept = bits - 0x80000000u <= 0x7f800000u ? 0 : bits; /* negative numbers become 0 */
    return ith_f32_from_bits(kept) - ith_f32_from_bits((int32_t)size > FARTHEST ? 0 : ith_f32_bits(below));
}

/* Adds up the SUM_LANES partial sums pair by pair, always in the same order. */
static inline double lanes_sum(double lanes[SUM_LANES])
{
#pragma GCC unroll 4
    for (int half = SUM_LANES / 2; half; half /= 2)
#pragma GCC unroll 8
        for (int j = 0; j < half; j++)
            lanes[j] += lanes[j + half];
    return lanes[0];
}

/* Sets all partial sums to zero. gcc would turn the loop into "rep stos", which takes longer than a short row. */
static inline void lanes_clear(double lanes[SUM_LANES])
{
#pragma GCC unroll 16
    for (int j = 0; j < SUM_LANES; j++)
        lanes[j] = 0;
}

/* The sum of x: element i goes to partial sum i % SUM_LANES. */
static double sum(const float *x, int64_t n)
{
    double lanes[SUM_LANES];
    int64_t i = 0;
    lanes_clear(lanes);
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int j = 0; j < SUM_LANES; j++)
            lanes[j] += (double)x[i + j];
    for (int j = 0; i + j < n; j++)
        lanes[j] += (double)x[i + j];
    return lanes_sum(lanes);
}

/* The sum of (x - centre)^2. */
static double sum_of_squares(const float *x, double centre, int64_t n)
{
    double lanes[SUM_LANES];
    int64_t i = 0;
    lanes_clear(lanes);
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int j = 0; j < SUM_LANES; j++) {
            double distance = (double)x[i + j] - centre;
            lanes[j] += distance * distance;
        }
    for (int j = 0; i + j < n; j++) {
        double distance = (double)x[i + j] - centre;
        lanes[j] += distance * distance;
    }
    return lanes_sum(lanes);
}

/* The result is accurate even if the mean is much larger than the deviations from it: the variance is the mean of the
 * squared distances from the mean, and the mean is subtracted in two parts. */
static void layer_norm(float *y, const float *x, const float *a, const float *b, int64_t n, float eps)
{
    if (n <= 0)
        return;
    double mean = sum(x, n) / (double)n;
    float inverse = (float)(1.0 / sqrt(sum_of_squares(x, mean, n) / (double)n + (double)eps));
    float mean_high = (float)mean, mean_low = (float)(mean - (double)mean_high);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float normal = (x[i] - mean_high - mean_low) * inverse;
        y[i] = normal * (a ? a[i] : 1.0f) + (b ? b[i] : 0.0f);
    }
}

static void rms_norm(float *y, const float *x, const float *w, int64_t n, float eps)
{
    if (n <= 0)
        return;
    float inverse = (float)(1.0 / sqrt(sum_of_squares(x, 0, n) / (double)n + (double)eps));
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * inverse * w[i];
}

/* "omp simd" lets the compiler vectorise although x is read and written through one pointer. */
static void rope(float *x, const float *cosines, const float *sines, int64_t heads, int64_t head_dim)
{
    for (int64_t h = 0; h < heads; h++, x += head_dim) {
#pragma omp simd
        for (int64_t i = 0; i < head_dim / 2; i++) {
            float even = x[2 * i], odd = x[2 * i + 1];
            x[2 * i] = even * cosines[i] - odd * sines[i];
            x[2 * i + 1] = even * sines[i] + odd * cosines[i];
        }
    }
}

static void add_gated(float *x, const float *y, const float *gate, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] += gate ? gate[i] * y[i] : y[i];
}

static void silu(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = silu_f32(x[i]);
}

static void gelu_tanh(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = gelu_tanh_f32(x[i]);
}

static void gelu_quick(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = gelu_quick_f32(x[i]);
}

static void gelu(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = gelu_f32(x[i]);
}

/* Multiplies the channels of one pixel by `inverse` and gamma. */
static inline void scale_pixel(float *y, const float *x, const float *gamma, float inverse, int64_t channels,
                               bool with_silu)
{
    if (with_silu) {
#pragma omp simd
        for (int64_t c = 0; c < channels; c++)
            y[c] = silu_f32(x[c] * inverse * gamma[c]);
    } else {
#pragma omp simd
        for (int64_t c = 0; c < channels; c++)
            y[c] = x[c] * inverse * gamma[c];
    }
}

/* Divides each pixel by its norm, but at least by 1e-12, so that a pixel of zeros stays zero. The sums of several
 * pixels are computed first: their roots and divisions take long, but do not wait for one another. */
static void channel_norm(float *y, const float *x, const float *gamma, int64_t pixels, int64_t channels, bool with_silu)
{
    const double root = sqrt((double)channels);
    for (int64_t first = 0; first < pixels; first += PIXELS_TOGETHER) {
        const int64_t count = pixels - first < PIXELS_TOGETHER ? pixels - first : PIXELS_TOGETHER;
        float inverse[PIXELS_TOGETHER];
        for (int64_t p = 0; p < count; p++)
            inverse[p] = (float)(root / fmax(sqrt(sum_of_squares(x + (first + p) * channels, 0, channels)), 1e-12));
        for (int64_t p = first; p < first + count; p++)
            scale_pixel(y + p * channels, x + p * channels, gamma, inverse[p - first], channels, with_silu);
    }
}

/* Returns the largest element. Comparisons with NaN are false, so NaN never becomes the maximum; in the softmax it
 * reaches every element through the sum. */
static float maximum(const float *x, int64_t n)
{
    float lanes[SUM_LANES];
    for (int j = 0; j < SUM_LANES; j++)
        lanes[j] = -INFINITY;
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int j = 0; j < SUM_LANES; j++)
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (int j = 0; i + j < n; j++)
        lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (int j = 1; j < SUM_LANES; j++)
        lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    return lanes[0];
}

/* Replaces x by its softmax. If all elements are -inf, the results are zeros instead of NaN. */
static void softmax(float *x, int64_t n)
{
    float most = maximum(x, n);
    if (most == -INFINITY) /* all elements are -inf or NaN */
        most = 0;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = exp_f32(x[i] - most);
    double total = sum(x, n);
    float inverse = total == 0 ? 0.0f : (float)(1.0 / total);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= inverse;
}

static void bf16_from_f32(uint16_t *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = ith_bf16_from_f32(x[i]);
}

static void f32_from_bf16(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = ith_f32_from_bf16(x[i]);
}

/* Returns pseudo-random bits: products by odd constants carry each bit of x upwards, and the shift brings them down. */
static inline uint32_t scatter(uint32_t x)
{
    x *= 0x9e3779b1u;
    x ^= x >> 15;
    return x * 0x85ebca77u;
}

static void round_stochastic(float *x, int64_t n, uint32_t row, uint32_t first)
{
    const uint32_t begin = scatter(row) + first;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = ith_f32_bits(x[i]), sum = bits + (scatter(begin + (uint32_t)i) >> 16);
        const uint32_t nan = bits | 0x400000u; /* a set fraction bit keeps it from becoming infinity */
        x[i] = ith_f32_from_bits(((bits & 0x7fffffffu) > 0x7f800000u ? nan : sum) & 0xffff0000u);
    }
}

static void multiply(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= x[i];
}

static void add_bias(float *x, const float *b, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++, x += columns)
#pragma omp simd
        for (int64_t j = 0; j < columns; j++)
            x[j] += b[i];
}

/* TURN_LANES floats, which compilers keep in one register, or in two if registers are narrower. */
#define TURN_LANES 8
typedef float turn_lanes __attribute__((vector_size(TURN_LANES * sizeof(float)), aligned(4), may_alias));

/* TURN_LANES numbers of two vectors, chosen by constant indices. */
#if defined(__clang__) || __GNUC__ >= 12
#define TURN_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int turn_indices __attribute__((vector_size(TURN_LANES * sizeof(int))));
#define TURN_PICK(a, b, ...) __builtin_shuffle(a, b, (turn_indices){__VA_ARGS__})
#endif

/* turn_and_bias for a square of TURN_LANES rows and columns. Three steps exchange halves of pairs of rows that are 4, 2
 * and 1 apart. */
static inline void turn_square(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *b)
{
    turn_lanes r[TURN_LANES], s[TURN_LANES];
    for (int i = 0; i < 8; i++)
        r[i] = *(const turn_lanes *)(const void *)(x + i * x_stride);
    for (int i = 0; i < 4; i++) {
        s[i] = TURN_PICK(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        s[i + 4] = TURN_PICK(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = i; j < i + 2; j++) {
            r[j] = TURN_PICK(s[j], s[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            r[j + 2] = TURN_PICK(s[j], s[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 8; i += 2) {
        s[i] = TURN_PICK(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        s[i + 1] = TURN_PICK(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    turn_lanes bias = *(const turn_lanes *)(const void *)b;
    for (int i = 0; i < 8; i++)
        *(turn_lanes *)(void *)(y + i * y_stride) = s[i] + bias;
}

static void turn_and_bias(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *b, int64_t rows,
                          int64_t columns)
{
    int64_t whole_rows = rows - rows % TURN_LANES, whole_columns = columns - columns % TURN_LANES;
    for (int64_t i = 0; i < whole_rows; i += TURN_LANES)
        for (int64_t j = 0; j < whole_columns; j += TURN_LANES)
            turn_square(y + j * y_stride + i, y_stride, x + i * x_stride + j, x_stride, b + i);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = j < whole_columns ? whole_rows : 0; i < rows; i++)
            y[j * y_stride + i] = x[i * x_stride + j] + b[i];
}

#define ITH_ROWOPS_TABLE(isa)                                                                                          \
    {                                                                                                                  \
        .name = isa, .layer_norm = layer_norm, .rms_norm = rms_norm, .rope = rope, .add_gated = add_gated,             \
        .silu = silu, .gelu_tanh = gelu_tanh, .gelu_quick = gelu_quick, .gelu = gelu, .channel_norm = channel_norm,    \
        .softmax = softmax, .bf16_from_f32 = bf16_from_f32, .f32_from_bf16 = f32_from_bf16,                            \
        .round_stochastic = round_stochastic, .multiply = multiply, .add_bias = add_bias,                              \
        .turn_and_bias = turn_and_bias                                                                                 \
    }
