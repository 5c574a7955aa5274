/* SPDX-License-Identifier: Apache-2.0 */
/* Weights rounded to bf16, 32 at a time, and the sum of what they were rounded to. */
#ifndef ITH_KERNELS_WEIGHTS_BF16_AVX512_H
#define ITH_KERNELS_WEIGHTS_BF16_AVX512_H

#include "../avx512/vec_avx512.h"

/* p = a, b; returns sum plus p, lane by lane in pairs. */
static inline vec store_weights_bf16(void *p, vec a, vec b, vec sum)
{
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    __m512bh both = _mm512_cvtne2ps_pbh(b, a);
    _mm512_storeu_si512(p, (__m512i)both);
    return _mm512_dpbf16_ps(sum, both, (__m512bh)ones);
}

#endif
