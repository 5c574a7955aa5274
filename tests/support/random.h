/* SPDX-License-Identifier: Apache-2.0 */
/* The random numbers of all tests: splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014). Any number is a good seed; the same seed gives the same numbers on every machine. */
#ifndef ITH_TESTS_RANDOM_H
#define ITH_TESTS_RANDOM_H

#include <stdint.h>

uint64_t random_bits(uint64_t *state);
/* Random integers in [0, below), and in [low, high]. */
uint32_t random_below(uint64_t *state, uint32_t below);
int64_t random_between(uint64_t *state, int64_t low, int64_t high);
/* Uniform random numbers: in [0, 1), multiples of 2^-24; in [-1, 1), multiples of 2^-23. */
float random_uniform(uint64_t *state);
float random_signed(uint64_t *state);
/* A normally distributed random number with variance 1. */
float random_normal(uint64_t *state);

/* `count` numbers of random_signed, to be freed with free(). */
float *random_floats(uint64_t *state, int64_t count);

#endif
