/* SPDX-License-Identifier: Apache-2.0 */
/* The median of measured times: a few interruptions by other programs do not change it. */
#ifndef ITH_BASE_MEDIAN_H
#define ITH_BASE_MEDIAN_H

#include <stdint.h>

/* Sorts `count` numbers, at least one, and returns their median. */
static inline double ith_median(double *numbers, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        for (int64_t j = i; j > 0 && numbers[j] < numbers[j - 1]; j--) {
            const double swapped = numbers[j];
            numbers[j] = numbers[j - 1], numbers[j - 1] = swapped;
        }
    return (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
}

#endif
