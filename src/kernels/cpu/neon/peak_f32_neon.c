/* SPDX-License-Identifier: Apache-2.0 */
/* The f32 multiply-add rate of NEON: twenty-four chains, more than four units times their latency. */
#include "../../peak.h"

#include <arm_neon.h>

enum { CHAINS = 24, STEPS = 64 };

static double work(int64_t rounds)
{
    float32x4_t sum[CHAINS], a = vdupq_n_f32(0.5f), b = vdupq_n_f32(1.0f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = vdupq_n_f32((float)c);
    for (int64_t i = 0; i < rounds; i++)
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 24
            for (int c = 0; c < CHAINS; c++)
                sum[c] = vfmaq_f32(sum[c], a, b);
        }
    float total = 0.0f;
    for (int c = 0; c < CHAINS; c++)
        total += vgetq_lane_f32(sum[c], 0);
    /* The sums only grow: the comparison is never true, but the compiler cannot know. */
    return total < 0.0f ? 0.0 : 2.0 * 4 * CHAINS * STEPS * (double)rounds;
}

const ith_peak_row ith_k_peak_f32_neon = {.name = "f32_neon", .cpu = ITH_CPU_NEON, .work = work};
