/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: against products in float64; the same bits for a row wherever it stands, whatever the team. */
#include "linear/linear.h"

#include "support/every_allocation.h"
#include "support/held.h"
#include "support/operand_kinds.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(seed >> 40) / (double)(1 << 24) * 2 - 1);
}

static float *random_numbers(int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = uniform();
    return x;
}

static ith_context *new_context(void)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    return context;
}

static ith_linear *make(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype type,
                        const float *bias, int kind)
{
    ith_linear *linear = NULL;
    assert_int_equal(ith_linear_create(context, in, out, weight, type, bias, operand_kinds[kind], &linear), ITH_OK);
    assert_int_equal(ith_linear_in(linear), in);
    assert_int_equal(ith_linear_out(linear), out);
    return linear;
}

/* The largest error of y, as a share of sum |x w| + |b|. */
static double worst_error(int64_t rows, int64_t in, int64_t out, const float *x, int64_t x_stride, const float *w,
                          const float *b, const float *y, int64_t y_stride, int kind)
{
    double worst = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++) {
            double sum = b ? (double)b[j] : 0, size = fabs(sum);
            for (int64_t k = 0; k < in; k++) {
                double term = operand_value(x[i * x_stride + k], kind) * operand_value(w[j * in + k], kind);
                sum += term;
                size += fabs(term);
            }
            worst = fmax(worst, fabs(sum - (double)y[i * y_stride + j]) / size);
        }
    return worst;
}

static void check_shape(ith_context *context, int64_t rows, int64_t in, int64_t out, int64_t x_more, int64_t y_more,
                        bool has_bias, int kind)
{
    float *w = random_numbers(in * out), *b = random_numbers(out), *x = random_numbers(rows * (in + x_more));
    float *y = malloc((size_t)(rows * (out + y_more)) * sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < rows * (out + y_more); i++)
        y[i] = 12345;
    ith_linear *linear = make(context, in, out, w, ITH_F32, has_bias ? b : NULL, kind);
    assert_int_equal(ith_linear_run(context, linear, rows, x, in + x_more, y, out + y_more), ITH_OK);
    assert_true(worst_error(rows, in, out, x, in + x_more, w, has_bias ? b : NULL, y, out + y_more, kind) < 1e-6);
    for (int64_t i = 0; i < rows; i++) /* what lies between the rows stays */
        for (int64_t j = out; j < out + y_more; j++)
            assert_true(y[i * (out + y_more) + j] == 12345);
    ith_linear_destroy(context, &linear);
    free(w), free(b), free(x), free(y);
}

static void test_against_float64(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},     {1, 7, 3},       {5, 16, 64},    {64, 64, 64},
                                        {63, 65, 127}, {65, 192, 192},  {129, 30, 200}, {20, 128, 257},
                                        {3, 300, 129}, {200, 256, 768}, {2, 2500, 130}, {70, 9000, 66}};
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 4 * operand_kinds_here(context); variant++)
            check_shape(context, shapes[i][0], shapes[i][1], shapes[i][2], variant & 1 ? 5 : 0, variant & 2 ? 3 : 0,
                        i % 2, variant / 4);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* A row alone, and among others: the same bits. */
static void check_bits(ith_context *context, int64_t in, int64_t out, int kind)
{
    enum { MOST = 300 };
    float *w = random_numbers(in * out), *b = random_numbers(out), *x = random_numbers(MOST * in);
    float *one_by_one = random_numbers(MOST * out), *together = random_numbers(MOST * out);
    ith_linear *linear = make(context, in, out, w, ITH_F32, b, kind);
    omp_set_num_threads(1);
    for (int64_t i = 0; i < MOST; i++)
        assert_int_equal(ith_linear_run(context, linear, 1, x + i * in, in, one_by_one + i * out, out), ITH_OK);
    for (int64_t rows = 1; rows <= MOST; rows += rows < 70 ? 1 : 23)
        for (int threads = 1; threads <= 3; threads++) {
            int64_t begin = (MOST - rows) / threads; /* other rows at other places */
            omp_set_num_threads(threads);
            memset(together, 255, (size_t)(rows * out) * sizeof *together);
            assert_int_equal(ith_linear_run(context, linear, rows, x + begin * in, in, together, out), ITH_OK);
            assert_memory_equal(together, one_by_one + begin * out, (size_t)(rows * out) * sizeof *together);
        }
    ith_linear_destroy(context, &linear);
    free(w), free(b), free(x), free(one_by_one), free(together);
}

static void test_bits(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{192, 192}, {192, 768}, {768, 192}, {100, 65}, {5000, 70}, {33, 300}};
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++)
            check_bits(context, shapes[i][0], shapes[i][1], kind);
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

/* The same numbers, stored in another type, give the same bits. */
static void test_weight_types(void **state)
{
    (void)state;
    enum { ROWS = 70, IN = 96, OUT = 150 };
    ith_context *context = new_context();
    float *w = random_numbers(IN * OUT), *x = random_numbers(ROWS * IN), *expected = random_numbers(ROWS * OUT);
    float *y = random_numbers(ROWS * OUT);
    uint16_t *narrow = malloc(sizeof *narrow * IN * OUT);
    static const ith_dtype types[] = {ITH_BF16, ITH_F16};
    for (int i = 0; i < 2 * operand_kinds_here(context); i++) {
        int kind = i / 2;
        ith_from_f32(narrow, types[i % 2], w, IN * OUT);
        ith_to_f32(w, narrow, types[i % 2], IN * OUT);
        ith_linear *wide = make(context, IN, OUT, w, ITH_F32, NULL, kind);
        ith_linear *linear = make(context, IN, OUT, narrow, types[i % 2], NULL, kind);
        assert_int_equal(ith_linear_run(context, wide, ROWS, x, IN, expected, OUT), ITH_OK);
        assert_int_equal(ith_linear_run(context, linear, ROWS, x, IN, y, OUT), ITH_OK);
        assert_memory_equal(y, expected, sizeof *y * ROWS * OUT);
        ith_linear_destroy(context, &linear);
        ith_linear_destroy(context, &wide);
    }
    free(w), free(x), free(expected), free(y), free(narrow);
    ith_context_destroy(&context);
}

typedef struct shared_case {
    const ith_linear *linear;
    const float *x, *expected;
    int64_t rows;
} shared_case;

static void test_several_ranks_at_once(void **state)
{
    (void)state;
    enum { ROWS = 130, IN = 64, OUT = 200, RANKS = 4 };
    ith_context *context = new_context();
    float *w = random_numbers(IN * OUT), *x = random_numbers(ROWS * IN), *y = random_numbers(RANKS * ROWS * OUT);
    float *expected = random_numbers(ROWS * OUT);
    ith_linear *linear = make(context, IN, OUT, w, ITH_F32, NULL, OPERANDS_F32);
    assert_int_equal(ith_linear_run(context, linear, ROWS, x, IN, expected, OUT), ITH_OK);
#pragma omp parallel num_threads(RANKS)
    {
        ith_context *mine = NULL;
        int rank = omp_get_thread_num();
        if (!ith_context_clone(context, &mine))
            for (int i = 0; i < 20; i++)
                (void)ith_linear_run(mine, linear, ROWS, x, IN, y + rank * ROWS * OUT, OUT);
        ith_context_destroy(&mine);
    }
    for (int rank = 0; rank < RANKS; rank++)
        assert_memory_equal(y + rank * ROWS * OUT, expected, sizeof *y * ROWS * OUT);
    ith_linear_destroy(context, &linear);
    free(w), free(x), free(y), free(expected);
    ith_context_destroy(&context);
}

static void test_refusals(void **state)
{
    (void)state;
    ith_context *context = new_context();
    ith_linear *linear = NULL;
    float w[4] = {1, 2, 3, 4};
    const ith_operand_types f32 = operand_kinds[OPERANDS_F32], undecided = {ITH_DTYPE_NONE, ITH_F32, ITH_F32};
    const ith_operand_types unrounded = {ITH_BF16, ITH_F32, ITH_BF16};
    assert_int_equal(ith_linear_create(context, 0, 4, w, ITH_F32, NULL, f32, &linear), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_linear_create(context, 2, 2, w, ITH_F64, NULL, f32, &linear), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_linear_create(context, 2, 2, w, ITH_F32, NULL, undecided, &linear), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_linear_create(context, 2, 2, w, ITH_F32, NULL, unrounded, &linear), ITH_ERR_ARGUMENT);
    assert_null(linear);
    ith_linear_destroy(context, &linear);
    linear = make(context, 2, 2, w, ITH_F32, NULL, OPERANDS_F32);
    assert_int_equal(ith_linear_run(context, linear, 0, NULL, 2, NULL, 2), ITH_OK);
    ith_linear_destroy(context, &linear);
    ith_context_destroy(&context);
}

/* ---- Allocations that fail ------------------------------------------------------------------------------------- */

typedef struct allocation_case {
    const float *numbers;
    int kind;
} allocation_case;

static ith_status create_and_run(ith_context *context, void *user)
{
    const allocation_case *one = user;
    const float *w = one->numbers, *x = w + 64 * 9;
    float y[64];
    ith_linear *linear = NULL;
    ith_status status = ith_linear_create(context, 9, 64, w, ITH_F32, NULL, operand_kinds[one->kind], &linear);
    if (!status)
        status = ith_linear_run(context, linear, 1, x, 9, y, 64);
    ith_linear_destroy(context, &linear);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    float *numbers = random_numbers(64 * 9 + 9);
    for (int kind = OPERANDS_F32; kind <= OPERANDS_BF16_IN_F32; kind++) {
        allocation_case one = {numbers, kind};
        assert_true(refuse_every_allocation(create_and_run, &one, 1) > 1);
    }
    free(numbers);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* What is held, and what a run takes for a while besides, next to the predictions. */
static void check_memory(int kind, int64_t rows)
{
    enum { IN = 1536, OUT = 1536, THREADS = 2 };
    ith_context *context = new_context();
    float *w = random_numbers(IN * OUT), *x = random_numbers(rows * IN), *y = random_numbers(rows * OUT);
    ith_linear *linear = make(context, IN, OUT, w, ITH_F32, NULL, kind);
    double held = (double)memory_of(context).current_bytes;
    assert_true(fabs(held - (double)ith_linear_bytes(IN, OUT, operand_kinds[kind])) < 0.02 * held);
    double wide = IN * OUT * 4;
    assert_true(kind == OPERANDS_F32 ? held > wide : held < 0.52 * wide);
    ith_context *other = NULL; /* counts the run alone */
    assert_int_equal(ith_context_create(NULL, &other), ITH_OK);
    assert_int_equal(ith_linear_run(other, linear, rows, x, IN, y, OUT), ITH_OK);
    double took = (double)memory_of(other).peak_bytes;
    double predicted = (double)ith_linear_run_bytes(IN, OUT, operand_kinds[kind], rows, THREADS);
    assert_true(predicted <= took && took <= 1.1 * predicted + 65536);
    ith_context_destroy(&other);
    ith_linear_destroy(context, &linear);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    free(w), free(x), free(y);
}

static void test_memory(void **state)
{
    (void)state;
    int threads = omp_get_max_threads();
    ith_context *context = new_context();
    int kinds = operand_kinds_here(context);
    ith_context_destroy(&context);
    omp_set_num_threads(2);
    for (int kind = 0; kind < kinds; kind++)
        for (int64_t rows = 1; rows <= 1000; rows *= 10)
            check_memory(kind, rows);
    omp_set_num_threads(threads);
}

/* ---- Two ways to multiply bf16 --------------------------------------------------------------------------------- */

/* bf16 instructions and f32 ones on the same operands: sums differ in rounding alone. */
static void test_both_ways_agree(void **state)
{
    (void)state;
    enum { ROWS = 100, IN = 2048, OUT = 130 };
    ith_context *context = new_context();
    if (operand_kinds_here(context) <= OPERANDS_BF16) {
        ith_context_destroy(&context);
        skip();
    }
    float *w = random_numbers(IN * OUT), *x = random_numbers(ROWS * IN), *y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = random_numbers(ROWS * OUT);
        ith_linear *linear = make(context, IN, OUT, w, ITH_F32, NULL, i ? OPERANDS_BF16 : OPERANDS_BF16_IN_F32);
        assert_int_equal(ith_linear_run(context, linear, ROWS, x, IN, y[i], OUT), ITH_OK);
        ith_linear_destroy(context, &linear);
    }
    double squares = 0, all = 0;
    for (int64_t i = 0; i < ROWS * OUT; i++) {
        squares += ((double)y[0][i] - (double)y[1][i]) * ((double)y[0][i] - (double)y[1][i]);
        all += (double)y[1][i] * (double)y[1][i];
    }
    print_message("bf16 in bf16 and in f32: relative difference %.2g\n", sqrt(squares / all));
    assert_true(squares <= 1e-12 * all);
    free(w), free(x), free(y[0]), free(y[1]);
    ith_context_destroy(&context);
}

/* Numbers half way between two bf16 go to the even one: 1 + 2^-8 to 1, 1 + 3 2^-8 to 1 + 2^-6. */
static void test_rounds_to_nearest_even(void **state)
{
    (void)state;
    const float halves[2] = {0x1.01p0f, 0x1.03p0f}, even[2] = {1, 0x1.04p0f};
    ith_context *context = new_context();
    for (int kind = OPERANDS_BF16_IN_F32; kind < operand_kinds_here(context); kind++)
        for (int i = 0; i < 4; i++) {
            float w = halves[i / 2], x = halves[i % 2], y = 0;
            ith_linear *linear = make(context, 1, 1, &w, ITH_F32, NULL, kind);
            assert_int_equal(ith_linear_run(context, linear, 1, &x, 1, &y, 1), ITH_OK);
            assert_true(y == even[i / 2] * even[i % 2]);
            ith_linear_destroy(context, &linear);
        }
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_float64),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_weight_types),
        cmocka_unit_test(test_several_ranks_at_once),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_both_ways_agree),
        cmocka_unit_test(test_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
