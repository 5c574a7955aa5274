/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking (unpack.h) compiled for AVX2. */
#include <immintrin.h>
#include <stdint.h>

/* out = factor * halves, for 32 numbers. */
static inline void halves_to_f32(const uint16_t *halves, float factor, float *out)
{
    for (int i = 0; i < 32; i += 8) {
        const __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)(halves + i));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtph_ps(bits), _mm256_set1_ps(factor)));
    }
}

#define UNPACK ith_unpack_avx2
#define UNPACK_F16(x) _cvtsh_ss(x)
#define UNPACK_HALVES halves_to_f32

#include "../../unpack_tmpl.c"
