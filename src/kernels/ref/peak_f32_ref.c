/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rate of f32 multiply-adds in plain C, for machines without another row in the peak table
 * (kernels.inc). */
#include "../peak.h"

/* Number of independent sums: more than a processor needs to keep its multiply-add units busy. */
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
