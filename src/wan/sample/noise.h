/* SPDX-License-Identifier: Apache-2.0 */
/* Normal noise from a counter-based generator: number i depends on the seed and on i alone, so every rank makes the
 * same noise, whole or in part, in any order.
 *
 *   block b = i / 4 is Philox 4x32-10 of the counter (b low, b high, 0, 0) under the key (seed low, seed high);
 *   its words (r0, r1) make the numbers 4b and 4b + 1, its words (r2, r3) the numbers 4b + 2 and 4b + 3:
 *   radius = sqrt(-2 ln((r0 + 1) / 2^32)), angle = 2 pi r1 / 2^32: radius cos(angle), radius sin(angle).
 *
 * The logarithm, cosine and sine are polynomials in double made of sums, products, divisions and square roots that are
 * not fused, and the result is rounded once to f32: the same bits on every machine with IEEE 754 arithmetic, whatever
 * its C library. Philox: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef ITH_WAN_NOISE_H
#define ITH_WAN_NOISE_H

#include "../../base/context.h"

#include <stdint.h>

/* noise[i - begin] for i in [begin, begin + count), begin >= 0. No number is beyond 6.67 in size. */
void ith_noise_normal(uint64_t seed, int64_t begin, int64_t count, float *noise);
/* The same; ITH_ERR_INTERRUPTED soon after the context is interrupted. */
ith_status ith_noise_make(ith_context *context, uint64_t seed, int64_t begin, int64_t count, float *noise);

/* Ten rounds of Philox 4x32. */
void ith_noise_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
