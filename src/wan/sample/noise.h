/* SPDX-License-Identifier: Apache-2.0 */
/* Normal noise from a counter-based generator. Number i depends on the seed and on i only, so every rank can make any
 * part of the same noise, in any order.
 *
 *   (r0, r1, r2, r3) = Philox 4x32-10 of the counter (b low, b high, 0, 0) and the key (seed low, seed high), b = i / 4
 *
 * r0 and r1 give the numbers 4b and 4b + 1, r2 and r3 the numbers 4b + 2 and 4b + 3, by the method of Box and Muller:
 *
 *   radius = sqrt(-2 ln((r0 + 1) / 2^32)), angle = 2 pi r1 / 2^32, numbers radius cos(angle) and radius sin(angle)
 *
 * Logarithm, cosine and sine are polynomials in double, computed without fused operations, and the result is rounded
 * once to f32. So every machine with IEEE 754 arithmetic gives the same bits, with any C library. Philox: Salmon,
 * Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef ITH_WAN_NOISE_H
#define ITH_WAN_NOISE_H

#include "../../base/context.h"

#include <stdint.h>

/* Fills `noise` with the numbers begin .. begin + count - 1 that belong to the seed; begin >= 0. No number is larger
 * than 6.67 in absolute value. */
void ith_noise_normal(uint64_t seed, int64_t begin, int64_t count, float *noise);
/* As ith_noise_normal, but returns ITH_ERR_INTERRUPTED within milliseconds if the context is interrupted. */
ith_status ith_noise_make(ith_context *context, uint64_t seed, int64_t begin, int64_t count, float *noise);

/* Computes ten rounds of the random generator Philox 4x32. */
void ith_noise_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
