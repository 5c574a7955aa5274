/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of sixteen floats for AVX-512. ../attn_state.h lists the functions. */
#ifndef ITH_KERNELS_VEC_AVX512_H
#define ITH_KERNELS_VEC_AVX512_H

#include <float.h>
#include <immintrin.h>
#include <stdint.h>

#include "../flush_x86.h"
#include "shape_avx512.h"

typedef __m512 vec;

static inline vec vec_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

static inline void vec_store(float *x, vec a)
{
    _mm512_storeu_ps(x, a);
}

static inline vec vec_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline float vec_hsum(vec a)
{
    return _mm512_reduce_add_ps(a);
}

static inline vec vec_load_bf16(const uint16_t *x)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vec vec_load_f16(const uint16_t *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
}

/* 2^f for f in [0, 1): a polynomial of degree 5 with P(0) = 1, minimax in relative error (8e-8). */
static inline vec vec_exp2_fraction(vec f)
{
    vec p = vec_fma(f, vec_set(1.8671316793e-3f), vec_set(9.0170269832e-3f));
    p = vec_fma(p, f, vec_set(5.5799916387e-2f));
    p = vec_fma(p, f, vec_set(2.4016444385e-1f));
    p = vec_fma(p, f, vec_set(6.9315129519e-1f));
    return vec_fma(p, f, vec_set(1.0f));
}

/* y 2^floor(x), or 0 if x < -126. NaN stays NaN. The result is no subnormal number if 1 <= y < 2. */
static inline vec vec_scale(vec y, vec x)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, vec_set(-126.0f), _CMP_NLT_UQ), y, x);
}

/* x - floor(x). x is kept in a register: on Zen 5, VREDUCEPS with an operand in memory makes vec_exp2_whole take 2.5
 * times as long (docs/perflog.md). */
static inline vec vec_fraction(vec x)
{
    __asm__("" : "+v"(x));
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* 2^x as 2^floor(x) 2^f with f = x - floor(x). */
static inline vec vec_exp2(vec x)
{
    return vec_scale(vec_exp2_fraction(vec_fraction(x)), x);
}

/* 2^(s - m) for an integer m, as 2^floor(s - m) 2^f with f = s - floor(s). s - m is rounded down, so its floor is
 * exact. */
static inline vec vec_exp2_whole(vec s, vec m)
{
    vec f = vec_fraction(s);
    vec x = _mm512_sub_round_ps(s, m, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    return vec_scale(vec_exp2_fraction(f), x);
}

/* Transposes a square of 16 x 16 numbers: pairs of rows that are 1, 2, 4 and 8 apart exchange halves. */
static inline void vec_transpose(vec x[LANES])
{
    vec y[LANES];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(y[i + j]), b = _mm512_castps_pd(y[i + j + 2]);
            x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* Every 4 x 4 square is now transposed; the squares themselves, 128 bits wide, are still to change places. */
    for (int i = 0; i < 4; i++) {
        vec a = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88), b = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        vec c = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88), d = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
        y[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        y[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        y[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        y[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; i++)
        x[i] = y[i];
}

/* Interleaves eight vectors, in place: x[0][0] x[1][0] ... x[7][0] x[0][1] ... First every 4 x 4 square of four rows is
 * transposed, so that 128 bits hold a step of four rows. Then these change places. */
static inline void vec_interleave(vec x[8])
{
    vec y[8];
    for (int i = 0; i < 8; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(y[4 * i + j]), b = _mm512_castps_pd(y[4 * i + j + 2]);
            x[4 * j + i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            x[4 * j + i + 2] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* 128 bits number L of x[2j] and x[2j + 1] now hold step 4L + j of the first and of the last four rows. */
    for (int j = 0; j < 8; j += 4) {
        vec a = _mm512_shuffle_f32x4(x[j], x[j + 1], 0x88), b = _mm512_shuffle_f32x4(x[j], x[j + 1], 0xdd);
        vec c = _mm512_shuffle_f32x4(x[j + 2], x[j + 3], 0x88), d = _mm512_shuffle_f32x4(x[j + 2], x[j + 3], 0xdd);
        y[j] = _mm512_shuffle_f32x4(a, c, 0x88), y[j + 2] = _mm512_shuffle_f32x4(a, c, 0xdd);
        y[j + 1] = _mm512_shuffle_f32x4(b, d, 0x88), y[j + 3] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    for (int n = 0; n < 4; n++)
        x[2 * n] = y[n], x[2 * n + 1] = y[n + 4];
}

/* Writes the first eight numbers of a vector to `low`, after the last eight to `high`. */
static inline void vec_store_halves(float *low, float *high, vec a)
{
    _mm256_storeu_ps(high, _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    _mm256_storeu_ps(low, _mm512_castps512_ps256(a));
}

#endif
