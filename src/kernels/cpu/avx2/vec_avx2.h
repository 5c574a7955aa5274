/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of eight floats for AVX2 and FMA. ../attn_state.h lists the functions. */
#ifndef ITH_KERNELS_VEC_AVX2_H
#define ITH_KERNELS_VEC_AVX2_H

#include <float.h>
#include <immintrin.h>
#include <stdint.h>

#include "../flush_x86.h"
#include "shape_avx2.h"

typedef __m256 vec;

static inline vec vec_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

static inline void vec_store(float *x, vec a)
{
    _mm256_storeu_ps(x, a);
}

static inline vec vec_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline float vec_hsum(vec a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

static inline vec vec_load_bf16(const uint16_t *x)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec vec_load_f16(const uint16_t *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}

/* 2^(s - m) for an integer m, as 2^(n - m) 2^f with n = round(s) and f = s - n in [-1/2, 1/2]. 2^f is a polynomial of
 * degree 5 with P(0) = 1, minimax in relative error (9e-8). The low bits of the sum s + shifter, shifter = 1.5 2^23 +
 * 127 - m, are n - m + 127. As the exponent of a float they give 2^(n - m), or 0 below 2^-127. An m too large for the
 * bits of shifter is subtracted from s first; s is then as large as m, and the subtraction is exact. */
static inline vec vec_exp2_whole(vec s, vec m)
{
    vec far = _mm256_and_ps(m, _mm256_cmp_ps(vec_mul(m, m), vec_set(0x1p40f), _CMP_GT_OQ));
    vec near = vec_sub(m, far);
    vec shifter = vec_sub(vec_set(0x1.8p23f + 127.0f), near);
    vec x = _mm256_max_ps(vec_sub(near, vec_set(127.0f)), vec_sub(s, far)); /* x is NaN where s is NaN */
    vec shifted = vec_add(x, shifter);
    vec f = vec_sub(x, vec_sub(shifted, shifter));
    vec p = vec_fma(f, vec_set(1.3264728477e-3f), vec_set(9.6715129912e-3f));
    p = vec_fma(p, f, vec_set(5.5507335812e-2f));
    p = vec_fma(p, f, vec_set(2.4022242427e-1f));
    p = vec_fma(p, f, vec_set(6.9314700365e-1f));
    p = vec_fma(p, f, vec_set(1.0f));
    return vec_mul(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}

static inline vec vec_exp2(vec x)
{
    return vec_exp2_whole(x, vec_set(0.0f));
}

/* Transposes two squares of 4 x 4 numbers, each in one half of the vectors. */
static inline void vec_transpose_halves(vec x[4])
{
    vec a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
    vec c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_shuffle_ps(a, c, 0x44);
    x[1] = _mm256_shuffle_ps(a, c, 0xee);
    x[2] = _mm256_shuffle_ps(b, d, 0x44);
    x[3] = _mm256_shuffle_ps(b, d, 0xee);
}

/* Transposes a square of 8 x 8 numbers: first within halves of 128 bits, then between the halves. */
static inline void vec_transpose(vec x[LANES])
{
    vec_transpose_halves(x);
    vec_transpose_halves(x + 4);
    for (int i = 0; i < 4; i++) {
        vec low = x[i], high = x[i + 4];
        x[i] = _mm256_permute2f128_ps(low, high, 0x20);
        x[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

/* Interleaves four vectors, in place: x[0][0] x[1][0] x[2][0] x[3][0] x[0][1] ... */
static inline void vec_interleave(vec x[4])
{
    vec_transpose_halves(x);
    vec a = x[0], b = x[1], c = x[2], d = x[3];
    x[0] = _mm256_permute2f128_ps(a, b, 0x20);
    x[1] = _mm256_permute2f128_ps(c, d, 0x20);
    x[2] = _mm256_permute2f128_ps(a, b, 0x31);
    x[3] = _mm256_permute2f128_ps(c, d, 0x31);
}

/* Writes the first four numbers of a vector to `low`, after the last four to `high`. */
static inline void vec_store_halves(float *low, float *high, vec a)
{
    _mm_storeu_ps(high, _mm256_extractf128_ps(a, 1));
    _mm_storeu_ps(low, _mm256_castps256_ps128(a));
}

#endif
