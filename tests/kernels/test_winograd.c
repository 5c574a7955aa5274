/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of F(2x2, 3x3) of every instruction set: together they are a convolution in float64, and each has the
 * bits of plain C. */
#include "base/dtype.h"
#include "kernels/winograd.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/machine.h"
#include "support/random.h"

enum { TILES = 3, CHANNELS = 37, WIDTH = 2 * TILES + 2, GUARD = 5 };

static uint64_t seed = 11;

/* The tables that this machine can run. */
static int tables(const ith_winograd *out[3])
{
    uint32_t cpu = machine_sets();
    int count = 0;
    out[count++] = ith_winograd_choose(ITH_CPU_BASELINE);
    if (cpu & ITH_CPU_AVX2)
        out[count++] = ith_winograd_choose(ITH_CPU_BASELINE | ITH_CPU_AVX2);
    if (cpu & ITH_CPU_AVX512)
        out[count++] = ith_winograd_choose(cpu);
    return count;
}

static void choice_follows_the_cpu(void **state)
{
    (void)state;
    assert_string_equal(ith_winograd_choose(0)->name, "ref");
    assert_string_equal(ith_winograd_choose(ITH_CPU_BASELINE)->name, "ref");
#if defined(__x86_64__)
    assert_string_equal(ith_winograd_choose(ITH_CPU_BASELINE | ITH_CPU_AVX2)->name, "avx2");
    assert_string_equal(ith_winograd_choose(ITH_CPU_AVX2 | ITH_CPU_AVX512)->name, "avx512");
#endif
}

/* Four rows of pixels, and the two rows of results for each channel by itself (a convolution of depth 1), computed with
 * the transforms of `w`. y has GUARD numbers behind it. */
static void convolve(const ith_winograd *w, const void *const d[4], ith_dtype dtype, const float *filters,
                     const float *bias, int64_t channels, float *y)
{
    enum { NUMBERS = TILES * CHANNELS };
    static const int first[4] = {0, 1, 2, 1}, second[4] = {2, 2, 1, 3};
    float v[4 * NUMBERS], u[16];
    for (int row = 0; row < 4; row++) {
        const ith_winograd_input input = {.first = d[first[row]],
                                          .second = d[second[row]],
                                          .dtype = dtype,
                                          .adds = row == 1,
                                          .tiles = TILES,
                                          .channels = channels,
                                          .v = v,
                                          .product_stride = TILES * channels,
                                          .tile_stride = channels};
        w->input(&input);
        for (int64_t c = 0; c < channels; c++) {
            ith_winograd_filter(u, filters + 9 * c);
            for (int i = 0; i < 4 * TILES; i++)
                v[i * channels + c] *= u[4 * row + i / TILES];
        }
        const ith_winograd_output output = {.row = row,
                                            .tiles = TILES,
                                            .channels = channels,
                                            .m = v,
                                            .product_stride = TILES * channels,
                                            .bias = bias,
                                            .upper = y,
                                            .lower = y + 2 * TILES * channels};
        w->output(&output);
    }
}

static void check_result(const float *pixels, const float *filters, const float *bias, int64_t channels, const float *y)
{
    for (int row = 0; row < 2; row++)
        for (int64_t x = 0; x < 2 * TILES; x++)
            for (int64_t c = 0; c < channels; c++) {
                double sum = (double)bias[c], size = fabs(sum) + 1;
                for (int i = 0; i < 9; i++) {
                    double term =
                        (double)filters[9 * c + i] * (double)pixels[((row + i / 3) * WIDTH + x + i % 3) * channels + c];
                    sum += term, size += fabs(term);
                }
                assert_true(fabs((double)y[(row * 2 * TILES + x) * channels + c] - sum) < 1e-6 * size);
            }
}

static void check_channels(int64_t channels, ith_dtype dtype)
{
    const ith_winograd *all[3];
    const int count = tables(all);
    const int64_t bytes = ith_dtype_bytes(dtype), made = 4 * TILES * channels;
    float *pixels = random_floats(&seed, 4 * WIDTH * channels), *filters = random_floats(&seed, 9 * channels),
          *bias = random_floats(&seed, channels), *y = malloc((size_t)(made + GUARD) * sizeof *y),
          *plain = malloc((size_t)made * sizeof *plain);
    char *stored = malloc((size_t)(4 * WIDTH * channels * bytes));
    ith_from_f32(stored, dtype, pixels, 4 * WIDTH * channels);
    ith_to_f32(pixels, stored, dtype, 4 * WIDTH * channels);
    const void *d[4];
    for (int i = 0; i < 4; i++)
        d[i] = stored + i * WIDTH * channels * bytes;
    for (int i = 0; i < count; i++) {
        for (int64_t j = 0; j < made + GUARD; j++)
            y[j] = 12345.0f;
        convolve(all[i], d, dtype, filters, bias, channels, y);
        check_result(pixels, filters, bias, channels, y);
        for (int64_t j = made; j < made + GUARD; j++)
            assert_true(y[j] == 12345.0f);
        if (!i)
            memcpy(plain, y, (size_t)made * sizeof *y);
        assert_memory_equal(y, plain, (size_t)made * sizeof *y);
    }
    free(pixels), free(filters), free(bias), free(y), free(plain), free(stored);
}

static void transforms_make_a_convolution(void **state)
{
    (void)state;
    static const int64_t channels[] = {1, 3, 8, 15, 16, 17, 32, CHANNELS};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        check_channels(channels[i], ITH_F32);
        check_channels(channels[i], ITH_BF16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choice_follows_the_cpu),
        cmocka_unit_test(transforms_make_a_convolution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
