/* SPDX-License-Identifier: Apache-2.0 */
/* The f32 multiply-add rate of plain C, for machines of which nothing better is known. */
#include "../peak.h"

/* Independent sums, more than the processor needs to keep its multiply-add units busy. */
enum { CHAINS = 16 };

static double work(int64_t rounds)
{
    float sum[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        sum[c] = (float)c;
    for (int64_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++)
            sum[c] = sum[c] * 0.5f + 1.0f;
    float total = 0.0f;
    for (int c = 0; c < CHAINS; c++)
        total += sum[c];
    /* The sums converge to 2, so the comparison is never true. The compiler does not know this, and keeps the loop. */
    return total < 0.0f ? 0.0 : 2.0 * CHAINS * (double)rounds;
}

const ith_peak_row ith_k_peak_f32_ref = {.name = "f32_ref", .cpu = ITH_CPU_BASELINE, .work = work};
