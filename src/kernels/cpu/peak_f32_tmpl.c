/* SPDX-License-Identifier: Apache-2.0 */
/* The rate of f32 multiply-adds in vectors: the body of <isa>/peak_f32_<isa>.c, which includes its vec_<isa>.h. Twelve
 * independent chains of vectors keep the units busy: they are more than the latency of a multiply-add times the number
 * of units. */
#include "../peak.h"

enum { CHAINS = 12, STEPS = 64 };

static double work(int64_t rounds)
{
    vec sum[CHAINS], a = vec_set(0.5f), b = vec_set(1.0f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = vec_set((float)c);
    for (int64_t i = 0; i < rounds; i++)
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 12
            for (int c = 0; c < CHAINS; c++)
                sum[c] = vec_fma(sum[c], a, b);
        }
    float total = 0.0f;
    for (int c = 0; c < CHAINS; c++)
        total += vec_hsum(sum[c]);
    /* The sums converge to 2, so the comparison is never true. The compiler does not know this, and keeps the loop. */
    return total < 0.0f ? 0.0 : 2.0 * LANES * CHAINS * STEPS * (double)rounds;
}
