/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on sizes. Products and sums are checked for overflow. */
#ifndef ITH_BASE_SIZE_H
#define ITH_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* The next two functions compute *out = a * b and *out = a + b. They return false if a or b is negative or the result
 * does not fit. */
static inline bool ith_size_mul(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}

static inline bool ith_size_add(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out);
}

static inline int64_t ith_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ith_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t ith_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t ith_round_up(int64_t a, int64_t b)
{
    return ith_div_up(a, b) * b;
}

/* The greatest common divisor, by Euclid's algorithm. */
static inline int64_t ith_common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The multiple of `step` that divides n and is nearest to `value`. n, a multiple of step, and value are at least 1.
 * Divisors of n / step are found if they, or their counterparts, are at most 2^20. */
static inline int64_t ith_nearest_divisor(int64_t n, int64_t step, int64_t value)
{
    const int64_t quotient = n / step;
    int64_t best = step;
    for (int64_t i = 1; i <= quotient / i && i <= 1 << 20; i++)
        for (int pair = 0; pair < 2 && quotient % i == 0; pair++) {
            const int64_t here = (pair ? quotient / i : i) * step, away = here > value ? here - value : value - here;
            best = away < (best > value ? best - value : value - best) ? here : best;
        }
    return best;
}

#endif
