/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions on a ring of frames against sums in float64, whichever slot holds the newest frame. */
#include "linear/conv.h"

#include "support/engine/kinds.h"

#include "support/memory.h"
#include "support/random.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 7;

/* One number of the output, and the sum of what it is made of without signs. */
static double expected(const ith_conv_shape *s, int kind, const float *ring, int64_t newest, const float *w, int64_t y,
                       int64_t x, int64_t o, double *size)
{
    double sum = 0;
    for (int64_t t = 0; t < s->frames; t++)
        for (int64_t i = 0; i < s->kernel; i++)
            for (int64_t j = 0; j < s->kernel; j++) {
                int64_t row = y + i - s->kernel / 2, column = x + j - s->kernel / 2;
                if (row < 0 || row >= s->height || column < 0 || column >= s->width)
                    continue;
                int64_t slot = (newest + 1 + t) % s->frames; /* the oldest frame meets the first tap */
                for (int64_t c = 0; c < s->in; c++) {
                    float a = ring[((slot * s->height + row) * s->width + column) * s->in + c];
                    float b = w[(((o * s->in + c) * s->frames + t) * s->kernel + i) * s->kernel + j];
                    double term = operand_value(a, kind) * operand_value(b, kind);
                    sum += term;
                    *size += fabs(term);
                }
            }
    return sum;
}

static void check_output(const ith_conv_shape *s, int kind, const float *ring, int64_t newest, const float *w,
                         const float *b, const float *before, const float *dst)
{
    for (int64_t y = 0; y < s->height; y++)
        for (int64_t x = 0; x < s->width; x++)
            for (int64_t o = 0; o < s->out; o++) {
                int64_t at = (y * s->width + x) * s->out + o;
                double base = (double)b[o] + (s->adds ? (double)before[at] : 0), size = fabs(base) + 1;
                double sum = base + expected(s, kind, ring, newest, w, y, x, o, &size);
                assert_true(fabs(sum - (double)dst[at]) < 1e-6 * size);
            }
}

static void check_shape(ith_context *context, ith_conv_shape s, int kind)
{
    s.types = operand_kinds[kind];
    int64_t ring_count = s.frames * s.height * s.width * s.in, dst_count = s.height * s.width * s.out;
    float *ring = random_floats(&seed, ring_count), *before = random_floats(&seed, dst_count),
          *dst = random_floats(&seed, dst_count);
    float *w = random_floats(&seed, s.out * s.in * s.frames * s.kernel * s.kernel), *b = random_floats(&seed, s.out);
    void *operand = malloc((size_t)ring_count * sizeof *ring);
    ith_operand_round(&s.types, &ith_rowops_ref, operand, ring, ring_count);
    ith_conv *conv = NULL;
    assert_int_equal(ith_conv_create(context, &s, w, ITH_F32, b, &conv), ITH_OK);
    char *scratch = ith_alloc(context, ith_conv_scratch_bytes(conv), 1, "scratch");
    for (int64_t newest = 0; newest < s.frames; newest++) {
        memcpy(dst, before, (size_t)dst_count * sizeof *dst);
        assert_int_equal(ith_conv_run(context, conv, operand, newest, dst, scratch), ITH_OK);
        check_output(&s, kind, ring, newest, w, b, before, dst);
    }
    ith_free(context, scratch);
    ith_conv_destroy(context, &conv);
    free(ring), free(before), free(dst), free(w), free(b), free(operand);
}

static void test_against_float64(void **state)
{
    (void)state;
    static const int64_t shapes[][6] = {{16, 16, 3, 3, 9, 7}, {3, 5, 3, 3, 4, 4},   {16, 3, 3, 3, 8, 12},
                                        {8, 32, 3, 1, 5, 6},  {32, 16, 1, 3, 6, 6}, {20, 24, 2, 3, 3, 5},
                                        {1, 1, 3, 3, 1, 1},   {64, 16, 1, 1, 2, 3}, {12, 6, 3, 5, 7, 6}};
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 2 * operand_kinds_here(context); variant++) {
            const int64_t *n = shapes[i];
            ith_conv_shape shape = {n[0], n[1], n[2], n[3], n[4], n[5], .adds = variant % 2 == 1};
            check_shape(context, shape, variant / 2);
        }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* The same weights, stored in another type, give the same bits. */
static void check_weight_types(ith_context *context, int kind)
{
    ith_conv_shape s = {16, 16, 3, 3, 6, 6, false, operand_kinds[kind]};
    enum { WEIGHTS = 16 * 16 * 27, FRAME = 36 * 16 };
    float *w = random_floats(&seed, WEIGHTS), *b = random_floats(&seed, 16), *ring = random_floats(&seed, 3 * FRAME);
    float *y = random_floats(&seed, FRAME), *z = random_floats(&seed, FRAME);
    ith_operand_round(&s.types, &ith_rowops_ref, ring, ring, 3 * FRAME);
    uint16_t *narrow = malloc(WEIGHTS * sizeof *narrow);
    static const ith_dtype types[] = {ITH_BF16, ITH_F16};
    for (int i = 0; i < 2; i++) {
        ith_from_f32(narrow, types[i], w, WEIGHTS);
        ith_to_f32(w, narrow, types[i], WEIGHTS);
        ith_conv *wide = NULL, *conv = NULL;
        assert_int_equal(ith_conv_create(context, &s, w, ITH_F32, b, &wide), ITH_OK);
        assert_int_equal(ith_conv_create(context, &s, narrow, types[i], b, &conv), ITH_OK);
        char *scratch = ith_alloc(context, ith_conv_scratch_bytes(wide), 1, "scratch");
        assert_int_equal(ith_conv_run(context, wide, ring, 1, y, scratch), ITH_OK);
        assert_int_equal(ith_conv_run(context, conv, ring, 1, z, scratch), ITH_OK);
        assert_memory_equal(y, z, FRAME * sizeof *y);
        ith_free(context, scratch);
        ith_conv_destroy(context, &wide);
        ith_conv_destroy(context, &conv);
    }
    free(w), free(b), free(ring), free(y), free(z), free(narrow);
}

static void test_weight_types(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    check_weight_types(context, OPERANDS_F32);
    check_weight_types(context, OPERANDS_BF16_IN_F32);
    ith_context_destroy(&context);
}

/* So large that it is cut into bands of rows. A run of the frame's first rows alone, which is not, has the same bits
 * wherever its kernel does not reach below them; the others are compared with float64, here and there. */
static void check_bands(ith_context *context, ith_conv_shape s)
{
    ith_conv_shape top = s;
    top.height = 8;
    int64_t frame = s.height * s.width * s.in, count = s.height * s.width * s.out,
            top_frame = top.height * s.width * s.in;
    float *ring = random_floats(&seed, s.frames * frame), *before = random_floats(&seed, count),
          *dst = random_floats(&seed, count);
    float *w = random_floats(&seed, s.out * s.in * s.frames * s.kernel * s.kernel), *b = random_floats(&seed, s.out);
    float *top_ring = random_floats(&seed, s.frames * top_frame),
          *top_dst = random_floats(&seed, top.height * s.width * s.out);
    for (int64_t t = 0; t < s.frames; t++)
        memcpy(top_ring + t * top_frame, ring + t * frame, (size_t)top_frame * sizeof *ring);
    memcpy(dst, before, (size_t)count * sizeof *dst);
    memcpy(top_dst, before, (size_t)(top.height * s.width * s.out) * sizeof *dst);
    ith_conv *conv = NULL, *alone = NULL;
    assert_int_equal(ith_conv_create(context, &s, w, ITH_F32, b, &conv), ITH_OK);
    assert_int_equal(ith_conv_create(context, &top, w, ITH_F32, b, &alone), ITH_OK);
    int64_t predicted = 0;
    assert_int_equal(ith_conv_predict_scratch(context, &s, &predicted), ITH_OK);
    assert_int_equal(predicted, ith_conv_scratch_bytes(conv));
    char *scratch = ith_alloc(context, predicted + ith_conv_scratch_bytes(alone), 1, "scratch");
    assert_int_equal(ith_conv_run(context, conv, ring, 0, dst, scratch), ITH_OK);
    assert_int_equal(ith_conv_run(context, alone, top_ring, 0, top_dst, scratch), ITH_OK);
    assert_memory_equal(dst, top_dst, (size_t)((top.height - 1) * s.width * s.out) * sizeof *dst);
    for (int64_t y = 0; y < s.height; y++)
        for (int64_t i = 0; i < 4; i++) {
            int64_t x = i < 2 ? i * (s.width - 1) : (y * 37 + i) % s.width, o = (y + i) % s.out;
            int64_t at = (y * s.width + x) * s.out + o;
            double base = (double)b[o] + (s.adds ? (double)before[at] : 0), size = fabs(base) + 1;
            double sum = base + expected(&s, OPERANDS_F32, ring, 0, w, y, x, o, &size);
            assert_true(fabs(sum - (double)dst[at]) < 1e-6 * size);
        }
    ith_context_interrupt(context, true);
    assert_int_equal(ith_conv_run(context, conv, ring, 0, dst, scratch), ITH_ERR_INTERRUPTED);
    ith_context_interrupt(context, false);
    ith_free(context, scratch);
    ith_conv_destroy(context, &conv);
    ith_conv_destroy(context, &alone);
    free(ring), free(before), free(dst), free(w), free(b), free(top_ring), free(top_dst);
}

static void test_bands(void **state)
{
    (void)state;
    ith_context *context = NULL;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = ITH_CPU_BASELINE; /* bands are the shorter, the slower the machine */
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    check_bands(context, (ith_conv_shape){64, 64, 3, 3, 192, 256, true, {ITH_F32, ITH_F32, ITH_F32}});
    check_bands(context, (ith_conv_shape){128, 96, 1, 3, 200, 256, false, {ITH_F32, ITH_F32, ITH_F32}});
    check_bands(context, (ith_conv_shape){96, 192, 3, 1, 300, 320, false, {ITH_F32, ITH_F32, ITH_F32}});
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    omp_set_num_threads(threads);
}

static void test_refusals(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    float w[9] = {0}, b[1] = {0};
    ith_conv *conv = NULL;
    const ith_conv_shape even = {1, 1, 1, 2, 3, 3, false, {ITH_F32, ITH_F32, ITH_F32}};
    const ith_conv_shape empty = {1, 1, 1, 3, 0, 3, false, {ITH_F32, ITH_F32, ITH_F32}};
    const ith_conv_shape undecided = {1, 1, 1, 3, 3, 3, false, {ITH_F32, ITH_F32, ITH_DTYPE_NONE}};
    const ith_conv_shape good = {1, 1, 1, 3, 3, 3, false, {ITH_F32, ITH_F32, ITH_F32}};
    assert_int_equal(ith_conv_create(context, &even, w, ITH_F32, b, &conv), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_conv_create(context, &empty, w, ITH_F32, b, &conv), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_conv_create(context, &undecided, w, ITH_F32, b, &conv), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_conv_create(context, &good, w, ITH_I32, b, &conv), ITH_ERR_ARGUMENT);
    assert_null(conv);
    assert_int_equal(ith_conv_create(context, &good, w, ITH_F32, b, &conv), ITH_OK);
    assert_int_equal(ith_conv_run(context, conv, w, 1, w, NULL), ITH_ERR_ARGUMENT);
    ith_conv_destroy(context, &conv);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_float64), cmocka_unit_test(test_bands),
                                       cmocka_unit_test(test_weight_types), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
