/* SPDX-License-Identifier: Apache-2.0 */
/* The normally distributed numbers of the tests (support/random.h) have the normal distribution, its tails included. */
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { COUNT = 4000000, TAIL_COUNT = 16000000, BINS = 96 };
static const double lowest = -6, width = 0.125;

/* The part of normally distributed numbers that lies above x. */
static double part_above(double x)
{
    return 0.5 * erfc(x / sqrt(2));
}

/* Chi-squared of the bins in which at least 10 numbers are expected. Numbers that fall outside have bins of their own.
 */
static void bins_are_filled_as_they_should(void **state)
{
    (void)state;
    static int64_t seen[BINS + 2];
    uint64_t random = 1;
    double chi_squared = 0;
    int bins = 0;
    for (int n = 0; n < COUNT; n++) {
        const double place = floor(((double)random_normal(&random) - lowest) / width);
        seen[1 + (int)fmin(fmax(place, -1), BINS)]++;
    }
    for (int i = 0; i < BINS + 2; i++) {
        const double low = i == 0 ? -INFINITY : lowest + (i - 1) * width;
        const double high = i == BINS + 1 ? INFINITY : lowest + i * width;
        const double want = COUNT * (part_above(low) - part_above(high)), off = (double)seen[i] - want;
        if (want < 10) {
            assert_true(seen[i] < 40);
            continue;
        }
        chi_squared += off * off / want;
        bins++;
    }
    assert_true(bins > 70);
    assert_true(chi_squared < bins + 4 * sqrt(2.0 * bins));
}

/* The ziggurat ends at 3.6541528853610088. Beyond it, on each side, lie as many numbers as there should be, and their
 * mean is right, to five standard deviations. The largest number is neither too far away nor too near. */
static void tails_are_right(void **state)
{
    (void)state;
    const double start = 3.6541528853610088, want = TAIL_COUNT * part_above(start);
    const double mean = exp(-0.5 * start * start) / sqrt(2 * acos(-1)) / part_above(start) - start;
    const double deviation = sqrt(1 - mean * (mean + start));
    uint64_t random = 2;
    double seen[2] = {0}, beyond[2] = {0}, most = 0;
    for (int n = 0; n < TAIL_COUNT; n++) {
        const double x = (double)random_normal(&random), size = fabs(x);
        most = fmax(most, size);
        if (size <= start)
            continue;
        seen[x > 0]++;
        beyond[x > 0] += size - start;
    }
    for (int side = 0; side < 2; side++)
        assert_true(fabs(seen[side] - want) < 5 * sqrt(want));
    const double all = seen[0] + seen[1];
    assert_true(fabs((beyond[0] + beyond[1]) / all - mean) < 5 * deviation / sqrt(all));
    assert_true(2 * TAIL_COUNT * part_above(most) > 0.01 && 2 * TAIL_COUNT * part_above(most) < 100);
}

/* Moments up to the fourth, and the correlation of neighbours, to five standard deviations. */
static void moments_are_right(void **state)
{
    (void)state;
    uint64_t random = 3;
    double sums[4] = {0}, neighbours = 0, before = 0;
    for (int n = 0; n < COUNT; n++) {
        const double x = (double)random_normal(&random);
        sums[0] += x, sums[1] += x * x, sums[2] += x * x * x, sums[3] += x * x * x * x;
        neighbours += x * before;
        before = x;
    }
    const double deviation = 1 / sqrt(COUNT);
    assert_true(fabs(sums[0] / COUNT) < 5 * deviation);
    assert_true(fabs(sums[1] / COUNT - 1) < 5 * sqrt(2) * deviation);
    assert_true(fabs(sums[2] / COUNT) < 5 * sqrt(15) * deviation);
    assert_true(fabs(sums[3] / COUNT - 3) < 5 * sqrt(96) * deviation);
    assert_true(fabs(neighbours / COUNT) < 5 * deviation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_are_filled_as_they_should),
        cmocka_unit_test(tails_are_right),
        cmocka_unit_test(moments_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
