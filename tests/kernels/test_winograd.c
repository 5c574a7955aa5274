/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of every instruction set, for tiles 2 and 4 pixels wide, for convolutions without time and over time.
 * Together they make a convolution, which is compared with float64. Each gives the bits of plain C. */
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

enum { TILES = 3, CHANNELS = 37, WIDTH_MOST = 4, GUARD = 5 };

static uint64_t seed = 11;

/* The tables that this machine can run. */
static int tables(const ith_winograd *out[MACHINE_LISTS])
{
    uint32_t lists[MACHINE_LISTS];
    const int count = machine_lists(lists);
    for (int i = 0; i < count; i++)
        out[i] = ith_winograd_choose(lists[i]);
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

/* A video of `frames` + 2 frames of four rows of pixels if it is convolved over time, otherwise of one frame; and the
 * two rows of results of each frame for each channel by itself (a convolution of depth 1). */
typedef struct scene {
    int width;  /* pixels of a tile side by side */
    int frames; /* frames of the result: 1, or 2 of a convolution over time */
    ith_dtype dtype;
    int64_t channels, row; /* channels; numbers in a row of pixels */
    char *stored;          /* [input frames][4][width * TILES + 2][channels] in `dtype` */
    float *pixels;         /* the same numbers in f32 */
    float *filters, *bias; /* [channels][taps]; [channels] */
} scene;

static int input_frames(const scene *s)
{
    return s->frames == 1 ? 1 : 4;
}

static int taps(const scene *s)
{
    return s->frames == 1 ? 9 : 27;
}

static const char *row_of(const scene *s, int frame, int row)
{
    return s->stored + (4 * frame + row) * s->row * (int64_t)ith_dtype_bytes(s->dtype);
}

/* Multiplies products [width + 2 columns][input frames][TILES][channels] of row `row` of v by the filters. */
static void multiply(const scene *s, int row, float *v)
{
    const int count = (s->width + 2) * input_frames(s);
    float u[ITH_WINOGRAD_MOST];
    for (int64_t c = 0; c < s->channels; c++) {
        if (s->frames == 1)
            ith_winograd_filter(s->width, u, s->filters + 9 * c);
        else
            ith_winograd_filter_time(s->width, u, s->filters + 27 * c);
        for (int i = 0; i < count * TILES; i++)
            v[i * s->channels + c] *= u[count * row + i / TILES];
    }
}

/* Computes y [frames][2][width * TILES][channels] with the transforms of `w`. */
static void convolve(const ith_winograd *w, const scene *s, float *y)
{
    static const int first[4] = {0, 1, 2, 1}, second[4] = {2, 2, 1, 3};
    static float v[(WIDTH_MOST + 2) * 4 * TILES * CHANNELS];
    const int64_t stride = TILES * s->channels;
    for (int row = 0; row < 4; row++) {
        ith_winograd_input input = {.width = s->width,
                                    .frames = input_frames(s),
                                    .dtype = s->dtype,
                                    .adds = row == 1,
                                    .tiles = TILES,
                                    .channels = s->channels,
                                    .v = v,
                                    .product_stride = stride,
                                    .tile_stride = s->channels};
        for (int i = 0; i < input.frames; i++)
            input.first[i] = row_of(s, i, first[row]), input.second[i] = row_of(s, i, second[row]);
        w->input(&input);
        multiply(s, row, v);
        ith_winograd_output output = {.width = s->width,
                                      .frames = s->frames,
                                      .row = row,
                                      .tiles = TILES,
                                      .channels = s->channels,
                                      .m = v,
                                      .product_stride = stride,
                                      .bias = s->bias};
        for (int i = 0; i < s->frames; i++)
            output.upper[i] = y + 2 * s->width * i * stride, output.lower[i] = output.upper[i] + s->width * stride;
        w->output(&output);
    }
}

/* Compares y with sums in float64 by the definition. */
static void check_result(const scene *s, const float *y)
{
    const int64_t line = s->width * TILES;
    for (int64_t i = 0; i < s->frames * 2 * line * s->channels; i++) {
        int64_t c = i % s->channels, x = i / s->channels % line, row = i / s->channels / line;
        double sum = (double)s->bias[c], size = fabs(sum) + 1;
        for (int k = 0; k < taps(s); k++) {
            int64_t from = row / 2 * 4 + row % 2 + k / 9 * 4 + k / 3 % 3;
            double term =
                (double)s->filters[taps(s) * c + k] * (double)s->pixels[from * s->row + (x + k % 3) * s->channels + c];
            sum += term, size += fabs(term);
        }
        assert_true(fabs((double)y[i] - sum) < 1e-6 * size);
    }
}

static void check_scene(const scene *s)
{
    const ith_winograd *all[MACHINE_LISTS];
    const int count = tables(all);
    const int64_t made = s->frames * 2 * s->width * TILES * s->channels;
    float *y = malloc((size_t)(made + GUARD) * sizeof *y), *plain = malloc((size_t)made * sizeof *plain);
    for (int i = 0; i < count; i++) {
        for (int64_t j = 0; j < made + GUARD; j++)
            y[j] = 12345.0f;
        convolve(all[i], s, y);
        check_result(s, y);
        for (int64_t j = made; j < made + GUARD; j++)
            assert_true(y[j] == 12345.0f);
        if (!i)
            memcpy(plain, y, (size_t)made * sizeof *y);
        assert_memory_equal(y, plain, (size_t)made * sizeof *y);
    }
    free(y), free(plain);
}

static void check_channels(int width, int frames, int64_t channels, ith_dtype dtype)
{
    scene s = {.width = width, .frames = frames, .dtype = dtype, .channels = channels};
    s.row = (width * TILES + 2) * channels;
    const int64_t numbers = input_frames(&s) * 4 * s.row;
    s.pixels = random_floats(&seed, numbers), s.filters = random_floats(&seed, taps(&s) * channels);
    s.bias = random_floats(&seed, channels), s.stored = malloc((size_t)(numbers * ith_dtype_bytes(dtype)));
    ith_from_f32(s.stored, dtype, s.pixels, numbers);
    ith_to_f32(s.pixels, s.stored, dtype, numbers);
    check_scene(&s);
    free(s.pixels), free(s.filters), free(s.bias), free(s.stored);
}

static void transforms_make_a_convolution(void **state)
{
    (void)state;
    static const int64_t channels[] = {1, 3, 8, 15, 16, 17, 32, CHANNELS};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (int width = 2; width <= WIDTH_MOST; width += 2)
            for (int frames = 1; frames <= 2; frames++) {
                check_channels(width, frames, channels[i], ITH_F32);
                check_channels(width, frames, channels[i], ITH_BF16);
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
