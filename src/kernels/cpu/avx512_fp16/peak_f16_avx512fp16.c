/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of f16 multiply-adds in AVX-512. Twelve independent chains keep the units busy: they are more than the
 * latency of a multiply-add times two units. */
#include "../../peak.h"

#include <immintrin.h>

enum { CHAINS = 12, STEPS = 64 };

static double work(int64_t rounds)
{
    __m512h sum[CHAINS], a = _mm512_set1_ph((_Float16)0.5f), b = _mm512_set1_ph((_Float16)1.0f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_set1_ph((_Float16)c);
    for (int64_t i = 0; i < rounds; i++)
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 12
            for (int c = 0; c < CHAINS; c++)
                sum[c] = _mm512_fmadd_ph(sum[c], a, b);
        }
    float total = 0.0f;
    for (int c = 0; c < CHAINS; c++)
        total += (float)_mm512_reduce_add_ph(sum[c]);
    /* The sums converge to 2, so the comparison is never true. The compiler does not know this, and keeps the loop. */
    return total < 0.0f ? 0.0 : 2.0 * 32 * CHAINS * STEPS * (double)rounds;
}

const ith_peak_row ith_k_peak_f16_avx512fp16 = {
    .name = "f16_avx512fp16", .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_FP16, .work = work};
