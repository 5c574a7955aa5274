/* SPDX-License-Identifier: Apache-2.0 */
/* Loads for kernels that pack numbers as bf16. Include vec_avx512.h before this header. */
#ifndef ITH_KERNELS_NUMBERS_AVX512_H
#define ITH_KERNELS_NUMBERS_AVX512_H

#include "../../../base/dtype.h"

/* A mask of the first `count` of LANES lanes. */
static inline __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= LANES ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1u);
}

/* Loads numbers [k, k + LANES) of x, of type F32 or F16, as f32. x has `count` numbers; numbers beyond its end become
 * zeros. */
static inline vec load_numbers(const void *x, ith_dtype dtype, int64_t k, int64_t count)
{
    __mmask16 there = first_lanes(count - k);
    if (dtype == ITH_F32)
        return _mm512_maskz_loadu_ps(there, (const float *)x + k);
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, (const uint16_t *)x + k));
}

/* Reorders 32 numbers of 16 bits into the pairs (number i, number 16 + i), for i from 0 to 15. */
static inline __m512i pair_halves(__m512i numbers)
{
    static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), numbers);
}

#endif
