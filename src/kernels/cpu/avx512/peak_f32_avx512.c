/* SPDX-License-Identifier: Apache-2.0 */
/* The f32 multiply-add rate of AVX-512: twelve chains, more than two units times their latency. */
#include "../../peak.h"

#include <immintrin.h>

enum { CHAINS = 12, STEPS = 64 };

static double work(int64_t rounds)
{
    __m512 sum[CHAINS], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_set1_ps((float)c);
    for (int64_t i = 0; i < rounds; i++)
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 12
            for (int c = 0; c < CHAINS; c++)
                sum[c] = _mm512_fmadd_ps(sum[c], a, b);
        }
    float total = 0.0f;
    for (int c = 0; c < CHAINS; c++)
        total += _mm512_reduce_add_ps(sum[c]);
    /* The sums converge to 2: the comparison is never true, but the compiler cannot know. */
    return total < 0.0f ? 0.0 : 2.0 * 16 * CHAINS * STEPS * (double)rounds;
}

const ith_peak_row ith_k_peak_f32_avx512 = {.name = "f32_avx512", .cpu = ITH_CPU_AVX512, .work = work};
