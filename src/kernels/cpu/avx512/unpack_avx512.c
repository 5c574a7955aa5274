/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking (unpack.h) compiled for AVX-512. */
#include <immintrin.h>
#include <stdint.h>

/* out = factor * halves, for 32 numbers. */
static inline void halves_to_f32(const uint16_t *halves, float factor, float *out)
{
    for (int i = 0; i < 32; i += 16) {
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(halves + i));
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(factor)));
    }
}

#define UNPACK ith_unpack_avx512
#define UNPACK_F16(x) _cvtsh_ss(x)
#define UNPACK_HALVES halves_to_f32

#include "../../unpack_tmpl.c"
