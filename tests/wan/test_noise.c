/* SPDX-License-Identifier: Apache-2.0 */
/* Noise: Philox compared with the test vectors of its authors' Random123, normal numbers compared with libm, moments,
 * and parts that do not depend on one another. */
#include "wan/sample/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        ith_noise_philox(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
}

/* The same number by the C library's functions, from the same random words. */
static double reference(uint64_t seed, uint64_t i)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 0, 0};
    uint32_t words[4];
    ith_noise_philox(counter, key, words);
    int pair = i % 4 < 2 ? 0 : 2;
    double radius = sqrt(-2 * log(((double)words[pair] + 1) / 4294967296.0));
    double angle = 2 * acos(-1) * (double)words[pair + 1] / 4294967296.0;
    return radius * (i % 2 ? sin(angle) : cos(angle));
}

static void normals_are_box_muller(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    float *noise = malloc(COUNT * sizeof *noise);
    assert_non_null(noise);
    const uint64_t seeds[] = {0, 1, 42, 0xdeadbeefcafef00du};
    const int64_t begins[] = {0, 3, (INT64_C(1) << 34) - 5, INT64_C(1) << 61};
    for (int s = 0; s < 4; s++) {
        ith_noise_normal(seeds[s], begins[s], COUNT, noise);
        for (int64_t i = 0; i < COUNT; i++) {
            double want = reference(seeds[s], (uint64_t)(begins[s] + i));
            assert_true(fabs((double)noise[i] - want) <= 6e-8 * fabs(want) + 1e-14);
        }
    }
    free(noise);
}

static void a_part_is_that_of_the_whole(void **state)
{
    (void)state;
    float whole[101], part[101];
    ith_noise_normal(9, 1000, 101, whole);
    for (int64_t begin = 0; begin <= 101; begin++)
        for (int64_t count = 0; begin + count <= 101; count += 7) {
            ith_noise_normal(9, 1000 + begin, count, part);
            assert_memory_equal(part, whole + begin, (size_t)count * sizeof *part);
        }
}

/* Noise is made in pieces, between which a run can be stopped. The pieces continue one another. */
static void long_noise_is_that_of_one_piece(void **state)
{
    (void)state;
    enum { BEGIN = 3, COUNT = 3 * (1 << 16) + 5 };
    ith_context *context = NULL;
    float *made = calloc(COUNT, sizeof *made), *whole = malloc(COUNT * sizeof *whole);
    assert_true(made && whole);
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_noise_make(context, 9, BEGIN, COUNT, made), ITH_OK);
    ith_noise_normal(9, BEGIN, COUNT, whole);
    assert_memory_equal(made, whole, COUNT * sizeof *made);
    ith_context_destroy(&context);
    free(whole);
    free(made);
}

/* Checks the bits of noise. They must never change, because seeds are published with videos. */
static void bits_stay_as_they_were(void **state)
{
    (void)state;
    float noise[4];
    ith_noise_normal(42, 0, 4, noise);
    static const uint32_t bits[4] = {0xbf785e5c, 0x3e46ace8, 0xbf9e28d2, 0x3ff6433b};
    assert_memory_equal(noise, bits, sizeof bits);
}

static void moments_are_those_of_a_normal(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    float *noise = malloc(COUNT * sizeof *noise);
    assert_non_null(noise);
    ith_noise_normal(123, 0, COUNT, noise);
    double moment[5] = {0}, neighbours = 0, beyond = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double x = (double)noise[i];
        for (int k = 1; k <= 4; k++)
            moment[k] += pow(x, k) / COUNT;
        neighbours += i ? x * (double)noise[i - 1] / COUNT : 0;
        beyond += fabs(x) > 3 ? 1.0 / COUNT : 0;
        assert_true(fabs(x) < 6.67);
    }
    free(noise);
    double deviation = 1 / sqrt((double)COUNT); /* bounds of five standard deviations */
    assert_true(fabs(moment[1]) < 5 * deviation);
    assert_true(fabs(moment[2] - 1) < 5 * sqrt(2) * deviation);
    assert_true(fabs(moment[3]) < 5 * sqrt(15) * deviation);
    assert_true(fabs(moment[4] - 3) < 5 * sqrt(96) * deviation);
    assert_true(fabs(neighbours) < 5 * deviation);
    assert_true(fabs(beyond - 0.0026998) < 5 * sqrt(0.0027) * deviation);
}

static void seeds_differ(void **state)
{
    (void)state;
    float a[64], b[64];
    ith_noise_normal(1, 0, 64, a);
    ith_noise_normal(UINT64_C(1) << 32 | 1, 0, 64, b);
    for (int i = 0; i < 64; i++)
        assert_true(a[i] != b[i]);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(philox_gives_the_known_answers),  cmocka_unit_test(normals_are_box_muller),
        cmocka_unit_test(a_part_is_that_of_the_whole),     cmocka_unit_test(bits_stay_as_they_were),
        cmocka_unit_test(moments_are_those_of_a_normal),   cmocka_unit_test(seeds_differ),
        cmocka_unit_test(long_noise_is_that_of_one_piece),
    };
    return cmocka_run_group_tests_name("noise", all, NULL, NULL);
}
