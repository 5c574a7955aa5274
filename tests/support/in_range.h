/* SPDX-License-Identifier: Apache-2.0 */
/* A check that a number lies in a range, for which cmocka 1 and cmocka 2 have no common assertion. */
#ifndef ITH_TESTS_IN_RANGE_H
#define ITH_TESTS_IN_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether low <= x <= high. */
static inline bool in_range(int64_t x, int64_t low, int64_t high)
{
    return low <= x && x <= high;
}

#endif
