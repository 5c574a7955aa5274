/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers for measurements. */
#ifndef ITH_BASE_RANDOM_NUMBERS_H
#define ITH_BASE_RANDOM_NUMBERS_H

#include <ithaca/ithaca.h>

/* Writes `count` nearly normal numbers, each the sum of four uniform ones. They depend on *seed, which is advanced. */
void ith_random_numbers(ith_dtype dtype, char *data, int64_t count, uint32_t *seed);

#endif
