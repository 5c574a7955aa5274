/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: against products in float64; the same bits for a row wherever it stands, whatever the team. */
#include "linear/onednn.h"
#include "support/engine/kinds.h"
#include "support/engine/one_layer.h"
#include "support/memory.h"
#include "support/random.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

static ith_context *new_context(void)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    return context;
}

static one_layer make(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype type,
                      const float *bias, int kind)
{
    one_layer layer;
    assert_int_equal(one_layer_make(context, in, out, weight, type, bias, operand_kinds[kind], &layer), ITH_OK);
    return layer;
}

static void apply(ith_context *context, const one_layer *layer, int64_t rows, const float *x, float *y)
{
    assert_int_equal(one_layer_apply(context, layer, rows, x, y), ITH_OK);
}

/* x rounded as operands of that kind. */
static double *operands(const float *x, int64_t count, int kind)
{
    double *rounded = malloc((size_t)count * sizeof *rounded);
    assert_non_null(rounded);
    for (int64_t i = 0; i < count; i++)
        rounded[i] = operand_value(x[i], kind);
    return rounded;
}

/* The largest error of y, as a share of sum |x w| + |b|. */
static double worst_error(int64_t rows, int64_t in, int64_t out, const float *x, const float *w, const float *b,
                          const float *y, int kind)
{
    double worst = 0, *x64 = operands(x, rows * in, kind), *w64 = operands(w, in * out, kind);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++) {
            double sum = b ? (double)b[j] : 0, size = fabs(sum);
            for (int64_t k = 0; k < in; k++) {
                double term = x64[i * in + k] * w64[j * in + k];
                sum += term;
                size += fabs(term);
            }
            worst = fmax(worst, fabs(sum - (double)y[i * out + j]) / size);
        }
    free(x64), free(w64);
    return worst;
}

static void check_shape(ith_context *context, int64_t rows, int64_t in, int64_t out, bool has_bias, int kind)
{
    enum { GUARD = 70 }; /* numbers behind y, which stay */
    float *w = random_floats(&seed, in * out), *b = random_floats(&seed, out), *x = random_floats(&seed, rows * in);
    float *y = malloc((size_t)(rows * out + GUARD) * sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < rows * out + GUARD; i++)
        y[i] = 12345;
    one_layer layer = make(context, in, out, w, ITH_F32, has_bias ? b : NULL, kind);
    apply(context, &layer, rows, x, y);
    assert_true(worst_error(rows, in, out, x, w, has_bias ? b : NULL, y, kind) < 1e-6);
    for (int64_t i = rows * out; i < rows * out + GUARD; i++)
        assert_true(y[i] == 12345);
    one_layer_free(context, &layer);
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
        for (int kind = 0; kind < operand_kinds_here(context); kind++)
            check_shape(context, shapes[i][0], shapes[i][1], shapes[i][2], i % 2, kind);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* A row alone, and among others, in workspaces for few rows and for many: the same bits. */
static void check_bits(ith_context *context, int64_t in, int64_t out, int kind)
{
    enum { MOST = 300 };
    float *w = random_floats(&seed, in * out), *b = random_floats(&seed, out), *x = random_floats(&seed, MOST * in);
    float *one_by_one = random_floats(&seed, MOST * out), *together = random_floats(&seed, MOST * out);
    one_layer layer = make(context, in, out, w, ITH_F32, b, kind);
    for (int threads = 1; threads <= 3; threads++) {
        ith_linear_workspace workspace;
        ith_arena arena;
        omp_set_num_threads(threads);
        assert_int_equal(one_workspace_make(context, layer.set, threads == 2 ? 1 : MOST, &workspace, &arena), ITH_OK);
        for (int64_t i = 0; threads == 1 && i < MOST; i++)
            assert_int_equal(ith_linear_apply(context, layer.linear, &workspace, 1, x + i * in, one_by_one + i * out),
                             ITH_OK);
        for (int64_t rows = 1; rows <= MOST; rows += rows < 70 ? 1 : 23) {
            int64_t begin = (MOST - rows) / threads; /* other rows at other places */
            memset(together, 255, (size_t)(rows * out) * sizeof *together);
            assert_int_equal(ith_linear_apply(context, layer.linear, &workspace, rows, x + begin * in, together),
                             ITH_OK);
            assert_memory_equal(together, one_by_one + begin * out, (size_t)(rows * out) * sizeof *together);
        }
        one_workspace_free(context, &workspace, &arena);
    }
    one_layer_free(context, &layer);
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
    float *w = random_floats(&seed, IN * OUT), *x = random_floats(&seed, ROWS * IN),
          *expected = random_floats(&seed, ROWS * OUT);
    float *y = random_floats(&seed, ROWS * OUT);
    uint16_t *narrow = malloc(sizeof *narrow * IN * OUT);
    static const ith_dtype types[] = {ITH_BF16, ITH_F16};
    for (int i = 0; i < 2 * operand_kinds_here(context); i++) {
        int kind = i / 2;
        ith_from_f32(narrow, types[i % 2], w, IN * OUT);
        ith_to_f32(w, narrow, types[i % 2], IN * OUT);
        one_layer wide = make(context, IN, OUT, w, ITH_F32, NULL, kind);
        one_layer layer = make(context, IN, OUT, narrow, types[i % 2], NULL, kind);
        apply(context, &wide, ROWS, x, expected);
        apply(context, &layer, ROWS, x, y);
        assert_memory_equal(y, expected, sizeof *y * ROWS * OUT);
        one_layer_free(context, &layer);
        one_layer_free(context, &wide);
    }
    free(w), free(x), free(expected), free(y), free(narrow);
    ith_context_destroy(&context);
}

static void test_several_ranks_at_once(void **state)
{
    (void)state;
    enum { ROWS = 130, IN = 64, OUT = 200, RANKS = 4 };
    ith_context *context = new_context();
    float *w = random_floats(&seed, IN * OUT), *x = random_floats(&seed, ROWS * IN),
          *y = random_floats(&seed, RANKS * ROWS * OUT);
    float *expected = random_floats(&seed, ROWS * OUT);
    one_layer layer = make(context, IN, OUT, w, ITH_F32, NULL, OPERANDS_F32);
    apply(context, &layer, ROWS, x, expected);
#pragma omp parallel num_threads(RANKS)
    {
        ith_context *mine = NULL;
        int rank = omp_get_thread_num();
        if (!ith_context_clone(context, &mine))
            for (int i = 0; i < 20; i++)
                (void)one_layer_apply(mine, &layer, ROWS, x, y + rank * ROWS * OUT);
        ith_context_destroy(&mine);
    }
    for (int rank = 0; rank < RANKS; rank++)
        assert_memory_equal(y + rank * ROWS * OUT, expected, sizeof *y * ROWS * OUT);
    one_layer_free(context, &layer);
    free(w), free(x), free(y), free(expected);
    ith_context_destroy(&context);
}

static void test_refusals(void **state)
{
    (void)state;
    ith_context *context = new_context();
    one_layer l;
    float w[4] = {1, 2, 3, 4};
    const ith_operand_types f32 = operand_kinds[OPERANDS_F32], undecided = {ITH_DTYPE_NONE, ITH_F32, ITH_F32};
    const ith_operand_types unrounded = {ITH_BF16, ITH_F32, ITH_BF16};
    assert_int_equal(one_layer_make(context, 0, 4, w, ITH_F32, NULL, f32, &l), ITH_ERR_ARGUMENT);
    assert_int_equal(one_layer_make(context, 2, 2, w, ITH_F64, NULL, f32, &l), ITH_ERR_ARGUMENT);
    assert_int_equal(one_layer_make(context, 2, 2, w, ITH_F32, NULL, undecided, &l), ITH_ERR_ARGUMENT);
    assert_int_equal(one_layer_make(context, 2, 2, w, ITH_F32, NULL, unrounded, &l), ITH_ERR_ARGUMENT);
    assert_int_equal(one_layer_make(context, INT32_MAX, INT32_MAX, w, ITH_F32, NULL, f32, &l), ITH_ERR_MEMORY);
    assert_int_equal(memory_of(context).current_bytes, 0);
    l = make(context, 2, 2, w, ITH_F32, NULL, OPERANDS_F32);
    apply(context, &l, 0, NULL, NULL);
    one_layer_free(context, &l);
    ith_context_destroy(&context);
}

/* ---- Allocations ----------------------------------------------------------------------------------------------- */

typedef struct allocation_case {
    const float *numbers;
    int kind;
} allocation_case;

static ith_status create_and_apply(ith_context *context, void *user)
{
    const allocation_case *one = user;
    const float *w = one->numbers, *x = w + 64 * 9;
    float y[64];
    one_layer layer;
    ith_status status = one_layer_make(context, 9, 64, w, ITH_F32, NULL, operand_kinds[one->kind], &layer);
    if (!status)
        status = one_layer_apply(context, &layer, 1, x, y);
    one_layer_free(context, &layer);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    float *numbers = random_floats(&seed, 64 * 9 + 9);
    for (int kind = OPERANDS_F32; kind <= OPERANDS_BF16_IN_F32; kind++) {
        allocation_case one = {numbers, kind};
        assert_int_equal(refuse_every_allocation(create_and_apply, &one, 1), 6);
    }
    free(numbers);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Two layers of one size and one of another: what was counted is what is taken. */
static void check_memory(ith_context *context, int kind)
{
    enum { IN = 1536, OUT = 1536 };
    float *w = random_floats(&seed, IN * OUT);
    ith_linear_set *set = NULL;
    ith_linear *layers[3] = {NULL};
    ith_arena arena = {0};
    int64_t before = memory_of(context).current_bytes, counted = 0;
    assert_int_equal(ith_linear_set_create(context, &set), ITH_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 3; i++)
            layers[i] = ith_linear_lay_out(set, IN, i < 2 ? OUT : 80, operand_kinds[kind], &arena);
        assert_int_equal(ith_linear_set_status(set), ITH_OK);
        if (!pass) {
            counted = arena.used_bytes;
            assert_int_equal(ith_arena_allocate(context, &arena, "layers"), ITH_OK);
        }
    }
    assert_int_equal(arena.used_bytes, counted);
    void *scratch = malloc((size_t)ith_linear_packing_bytes(set));
    for (int i = 0; i < 3; i++)
        assert_int_equal(ith_linear_pack(context, layers[i], w, ITH_F32, NULL, scratch), ITH_OK);
    free(scratch);
    int64_t held = memory_of(context).current_bytes - before;
    assert_int_equal(held, counted + ITH_ALLOC_HEADER + ith_linear_set_bytes(set));
    double wide = (double)(IN * (2 * OUT + 80) * 4), share = (double)held / wide;
    assert_true(kind == OPERANDS_F32 ? share > 1 && share < 1.06 : share > 0.5 && share < 0.53);
    ith_linear_set_destroy(&set);
    ith_free(context, arena.base);
    assert_int_equal(memory_of(context).current_bytes, before);
    free(w);
}

static void test_memory(void **state)
{
    (void)state;
    ith_context *context = new_context();
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        check_memory(context, kind);
    ith_context_destroy(&context);
}

/* However many rows a workspace was made for. */
static void test_applying_allocates_nothing(void **state)
{
    (void)state;
    enum { IN = 300, OUT = 700, MOST = 1000 };
    failing_allocator allocator;
    ith_context *context = failing_context(&allocator, -1);
    float *w = random_floats(&seed, IN * OUT), *x = random_floats(&seed, MOST * IN),
          *y = random_floats(&seed, MOST * OUT);
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        for (int64_t made_for = 1; made_for <= MOST; made_for *= 10) {
            one_layer layer = make(context, IN, OUT, w, ITH_F32, NULL, kind);
            ith_linear_workspace workspace;
            ith_arena arena;
            assert_int_equal(one_workspace_make(context, layer.set, made_for, &workspace, &arena), ITH_OK);
            long allocations = atomic_load(&allocator.calls);
            int64_t objects = ith_onednn_objects_made();
            assert_true(objects > 0);
            for (int64_t rows = 1; rows <= MOST; rows *= 10)
                assert_int_equal(ith_linear_apply(context, layer.linear, &workspace, rows, x, y), ITH_OK);
            assert_int_equal(atomic_load(&allocator.calls), allocations);
            assert_int_equal(ith_onednn_objects_made(), objects);
            one_workspace_free(context, &workspace, &arena);
            one_layer_free(context, &layer);
        }
    free(w), free(x), free(y);
    ith_context_destroy(&context);
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
    float *w = random_floats(&seed, IN * OUT), *x = random_floats(&seed, ROWS * IN), *y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = random_floats(&seed, ROWS * OUT);
        one_layer layer = make(context, IN, OUT, w, ITH_F32, NULL, i ? OPERANDS_BF16 : OPERANDS_BF16_IN_F32);
        apply(context, &layer, ROWS, x, y[i]);
        one_layer_free(context, &layer);
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
            one_layer layer = make(context, 1, 1, &w, ITH_F32, NULL, kind);
            apply(context, &layer, 1, &x, &y);
            assert_true(y == even[i / 2] * even[i % 2]);
            one_layer_free(context, &layer);
        }
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_float64), cmocka_unit_test(test_bits),
        cmocka_unit_test(test_weight_types),    cmocka_unit_test(test_several_ranks_at_once),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_memory),          cmocka_unit_test(test_applying_allocates_nothing),
        cmocka_unit_test(test_both_ways_agree), cmocka_unit_test(test_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
