/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as sums of PARTS bf16 numbers, because AMX multiplies bf16:
 *
 *     x = x_0 + x_1 + ...,   x_a = x - x_0 - ... - x_(a-1), rounded to bf16          (arXiv:1904.06376)
 *
 * Three parts hold all 24 bits of an f32, two parts all 11 bits of an f16. The including file includes vec_avx512.h
 * and defines PARTS before this header. */
#ifndef ITH_KERNELS_SPLIT_AMX_H
#define ITH_KERNELS_SPLIT_AMX_H

/* Converts the upper 16 of 32 bf16 numbers to f32. */
static inline vec upper_half(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(pairs, 1)), 16));
}

/* Converts the lower 16 of 32 bf16 numbers to f32. */
static inline vec lower_half(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(pairs)), 16));
}

/* Splits each of 32 numbers, the 16 of a and the 16 of b, into PARTS bf16 numbers. part[n] holds part n of all 32
 * numbers. */
static inline void split(vec a, vec b, __m512i part[PARTS])
{
#pragma GCC unroll 3
    for (int n = 0; n < PARTS; n++) {
        part[n] = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        a = vec_sub(a, lower_half(part[n]));
        b = vec_sub(b, upper_half(part[n]));
    }
}

#endif
