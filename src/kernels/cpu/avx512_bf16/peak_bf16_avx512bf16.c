/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of bf16 dot products. VDPBF16PS adds a_2i b_2i + a_2i+1 b_2i+1 to each of 16 sums in f32. Sixteen
 * independent chains keep the units busy: they are more than the latency of the instruction times two units. */
#include "../../peak.h"

#include <immintrin.h>

enum { CHAINS = 16, STEPS = 64 };

static double work(int64_t rounds)
{
    /* The products of the pairs (1, -1) and (1, 1) cancel, so the sums stay as they are. The compiler does not know
     * this, and keeps the loop. */
    __m512bh a = (__m512bh)_mm512_set1_epi32((int)0xbf803f80), b = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    __m512 sum[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_set1_ps((float)c);
    for (int64_t i = 0; i < rounds; i++)
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 16
            for (int c = 0; c < CHAINS; c++)
                sum[c] = _mm512_dpbf16_ps(sum[c], a, b);
        }
    float total = 0.0f;
    for (int c = 0; c < CHAINS; c++)
        total += _mm512_reduce_add_ps(sum[c]);
    return total < 0.0f ? 0.0 : 4.0 * 16 * CHAINS * STEPS * (double)rounds;
}

const ith_peak_row ith_k_peak_bf16_avx512bf16 = {
    .name = "bf16_avx512bf16", .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16, .work = work};
