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

/* A convolution with its weights, and memory for it. */
typedef struct packed_conv {
    ith_context *context;
    ith_conv conv;
    char *memory, *scratch;
} packed_conv;

static ith_status packed_open(packed_conv *p, ith_context *context, const ith_conv_shape *shape, const void *w,
                              ith_dtype type, const float *bias)
{
    *p = (packed_conv){.context = context};
    ith_status status = ith_conv_create(context, shape, &p->conv);
    if (status)
        return status;
    ith_arena arena = {0};
    ith_conv_lay_out(&p->conv, &arena);
    assert_int_equal(ith_arena_allocate(context, &arena, "packed weights"), ITH_OK);
    p->memory = arena.base;
    ith_conv_lay_out(&p->conv, &arena);
    int64_t scratch = ith_conv_scratch_bytes(&p->conv), packing = ith_conv_weight_bytes(shape);
    p->scratch = ith_alloc(context, scratch > packing ? scratch : packing, 1, "scratch");
    return ith_conv_pack(context, &p->conv, w, type, bias, p->scratch);
}

static ith_status packed_run(packed_conv *p, const void *ring, int64_t newest, float *dst)
{
    return ith_conv_apply(p->context, &p->conv, ring, newest, dst, p->scratch);
}

static void packed_close(packed_conv *p)
{
    ith_conv_destroy(p->context, &p->conv);
    ith_free(p->context, p->memory);
    ith_free(p->context, p->scratch);
}

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
    packed_conv conv;
    assert_int_equal(packed_open(&conv, context, &s, w, ITH_F32, b), ITH_OK);
    int64_t objects = ith_onednn_objects_made(), peak = memory_of(context).peak_bytes;
    for (int64_t newest = 0; newest < s.frames; newest++) {
        memcpy(dst, before, (size_t)dst_count * sizeof *dst);
        assert_int_equal(packed_run(&conv, operand, newest, dst), ITH_OK);
        check_output(&s, kind, ring, newest, w, b, before, dst);
    }
    assert_int_equal(ith_onednn_objects_made(), objects);
    assert_int_equal(memory_of(context).peak_bytes, peak);
    packed_close(&conv);
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
        packed_conv wide, conv;
        assert_int_equal(packed_open(&wide, context, &s, w, ITH_F32, b), ITH_OK);
        assert_int_equal(packed_open(&conv, context, &s, narrow, types[i], b), ITH_OK);
        assert_int_equal(packed_run(&wide, ring, 1, y), ITH_OK);
        assert_int_equal(packed_run(&conv, ring, 1, z), ITH_OK);
        assert_memory_equal(y, z, FRAME * sizeof *y);
        packed_close(&wide);
        packed_close(&conv);
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
    packed_conv conv, alone;
    assert_int_equal(packed_open(&conv, context, &s, w, ITH_F32, b), ITH_OK);
    assert_int_equal(packed_open(&alone, context, &top, w, ITH_F32, b), ITH_OK);
    assert_true(conv.conv.band < s.height && alone.conv.band == top.height);
    assert_int_equal(packed_run(&conv, ring, 0, dst), ITH_OK);
    assert_int_equal(packed_run(&alone, top_ring, 0, top_dst), ITH_OK);
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
    assert_int_equal(packed_run(&conv, ring, 0, dst), ITH_ERR_INTERRUPTED);
    ith_context_interrupt(context, false);
    packed_close(&conv);
    packed_close(&alone);
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
    packed_conv conv;
    const ith_conv_shape bad[] = {{1, 1, 1, 2, 3, 3, false, {ITH_F32, ITH_F32, ITH_F32}},
                                  {1, 1, 1, 3, 0, 3, false, {ITH_F32, ITH_F32, ITH_F32}},
                                  {1, 1, 1, 3, 3, 3, false, {ITH_F32, ITH_F32, ITH_DTYPE_NONE}}};
    const ith_conv_shape good = {1, 1, 1, 3, 3, 3, false, {ITH_F32, ITH_F32, ITH_F32}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(packed_open(&conv, context, &bad[i], w, ITH_F32, b), ITH_ERR_ARGUMENT);
        packed_close(&conv);
    }
    assert_int_equal(packed_open(&conv, context, &good, w, ITH_I32, b), ITH_ERR_ARGUMENT);
    packed_close(&conv);
    assert_int_equal(packed_open(&conv, context, &good, w, ITH_F32, b), ITH_OK);
    assert_int_equal(packed_run(&conv, w, 1, w), ITH_ERR_ARGUMENT);
    packed_close(&conv);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_float64), cmocka_unit_test(test_bands),
                                       cmocka_unit_test(test_weight_types), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
