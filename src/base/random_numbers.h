/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-random numbers for measurements, simulations and random weights. */
#ifndef ITH_BASE_RANDOM_NUMBERS_H
#define ITH_BASE_RANDOM_NUMBERS_H

#include <ithaca/ithaca.h>

/* The next number of splitmix64 (doi:10.1145/2660193.2660195). *state may begin with any value. */
static inline uint64_t ith_random_word(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Writes `count` nearly normal numbers with mean 0 and variance 1, each from the sum of four uniform numbers. They
 * depend on *seed, which is advanced. */
void ith_random_numbers(ith_dtype dtype, char *data, int64_t count, uint32_t *seed);

#endif
