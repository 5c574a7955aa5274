/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of linear layers: layers that are refused, a stop that comes while the caller's functions run,
 * allocations that fail. */
#include "support/engine/kinds.h"
#include "support/engine/one_layer.h"
#include "support/fixture.h"
#include "support/in_range.h"
#include "support/random.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

static one_layer make(int64_t in, int64_t out, const float *weight)
{
    one_layer layer;
    check(context, one_layer_make(context, in, out, weight, ITH_F32, NULL, operand_kinds[OPERANDS_F32], false, &layer));
    return layer;
}

static void test_refusals(void **state)
{
    (void)state;
    one_layer l;
    ith_linear_weight four[4];
    float w[4] = {1, 2, 3, 4};
    const ith_operand_types f32 = operand_kinds[OPERANDS_F32], undecided = {ITH_DTYPE_NONE, ITH_F32, ITH_F32};
    const ith_operand_types unrounded = {ITH_BF16, ITH_F32, ITH_BF16};
    static const int64_t sizes[][2] = {{0, 4}, {4, 0}, {(int64_t)INT32_MAX + 1, 1}, {1, (int64_t)INT32_MAX + 1}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(one_layer_make(context, sizes[i][0], sizes[i][1], w, ITH_F32, NULL, f32, false, &l),
                         ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "both must be from 1 to 2^31 - 1"));
    }
    assert_int_equal(one_layer_make(context, 2, 2, w, ITH_F64, NULL, f32, false, &l), ITH_ERR_ARGUMENT);
    assert_int_equal(one_layer_make(context, 2, 2, w, ITH_F32, NULL, undecided, false, &l), ITH_ERR_ARGUMENT);
    assert_int_equal(one_layer_make(context, 2, 2, w, ITH_F32, NULL, unrounded, false, &l), ITH_ERR_ARGUMENT);
    assert_int_equal(one_layer_make(context, INT32_MAX, INT32_MAX, w, ITH_F32, NULL, f32, true, &l), ITH_ERR_MEMORY);
    assert_non_null(strstr(ith_context_error(context), "take more memory than a size can hold"));
    assert_int_equal(memory_of(context).current_bytes, 0);
    l = make(2, 2, w);
    check(context, one_layer_apply(context, &l, 0, NULL, NULL));
    const ith_linear_weight few[4] = {
        {.data = w, .type = ITH_F32, .rows = 1}, {.data = w, .type = ITH_F32, .rows = 1}, {.data = w, .type = ITH_F32}};
    assert_int_equal(ith_linear_attach(context, l.linear, few, 1, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_linear_attach(context, l.linear, few, 4, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_linear_attach(context, l.linear, few, 0, NULL), ITH_ERR_ARGUMENT);
    for (int64_t rows = -1; rows <= 3; rows++) {
        const ith_linear_weight two[] = {{.data = w, .type = ITH_F32, .rows = rows},
                                         {.data = w, .type = ITH_F32, .rows = 2 - rows}};
        assert_int_equal(ith_linear_attach(context, l.linear, two, 2, NULL), rows == 1 ? ITH_OK : ITH_ERR_ARGUMENT);
    }
    one_layer_free(context, &l);
    l = make(1, 4, w);
    for (int i = 0; i < 4; i++)
        four[i] = (ith_linear_weight){.data = w, .type = ITH_F32, .rows = 1};
    assert_int_equal(ith_linear_attach(context, l.linear, four, 4, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "4 matrices"));
    ith_arena arena = {0};
    ith_linear_workspace endless;
    ith_linear_workspace_lay_out(l.set, 1, INT64_MAX, &arena, &endless);
    assert_true(in_range(ith_linear_strip(&endless), 1, 1 << 16));
    one_layer_free(context, &l);
}

enum { STOPPED_ROWS = 5000, STOPPED_OUT = 1000 };

/* The call of `take` at which the caller stops the run, and the numbers of each row that were taken. */
typedef struct stopper {
    atomic_long takes;
    long stop_at;
    float x[64];
    atomic_int numbers[STOPPED_ROWS];
    atomic_int unfinished; /* rows that were finished before all of their numbers were taken */
} stopper;

static const float *stopper_row(const void *user, int64_t row, float *space)
{
    (void)row, (void)space;
    return ((const stopper *)user)->x;
}

static void stopper_take(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    stopper *s = user;
    (void)first, (void)y;
    atomic_fetch_add(&s->numbers[row], (int)count);
    if (atomic_fetch_add(&s->takes, 1) == s->stop_at)
        ith_context_interrupt(context);
}

static void stopper_finish(void *user, int64_t row)
{
    stopper *s = user;
    if (atomic_load(&s->numbers[row]) != STOPPED_OUT)
        atomic_fetch_add(&s->unfinished, 1);
}

/* A stop that comes while the first strip's rows are taken is heard before the second strip, and one that comes while
 * weights are packed is heard, too. */
static void test_interruption(void **state)
{
    (void)state;
    float *w = random_floats(&seed, 64 * STOPPED_OUT);
    one_layer layer = make(64, STOPPED_OUT, w);
    ith_linear_workspace workspace;
    ith_arena arena;
    check(context, one_workspace_make(context, layer.set, 100, &workspace, &arena));
    for (long stop_at = -1; stop_at < 3; stop_at++) {
        stopper *s = calloc(1, sizeof *s);
        assert_non_null(s);
        s->stop_at = stop_at;
        const ith_linear_input input = {stopper_row, s};
        const ith_linear_output output = {.take = stopper_take, .finish = stopper_finish, .user = s};
        if (stop_at < 0)
            ith_context_interrupt(context);
        assert_int_equal(ith_linear_apply(context, layer.linear, &workspace, STOPPED_ROWS, &input, &output),
                         ITH_ERR_INTERRUPTED);
        assert_true(atomic_load(&s->takes) < STOPPED_ROWS);
        assert_true(stop_at >= 0 || atomic_load(&s->takes) == 0);
        assert_int_equal(atomic_load(&s->unfinished), 0);
        ith_context_end_interruption(context);
        free(s);
    }
    one_layer kept;
    ith_context_interrupt(context);
    assert_int_equal(
        one_layer_make(context, 64, STOPPED_OUT, w, ITH_F32, NULL, operand_kinds[OPERANDS_F32], true, &kept),
        ITH_ERR_INTERRUPTED);
    ith_context_end_interruption(context);
    one_workspace_free(context, &workspace, &arena);
    one_layer_free(context, &layer);
    free(w);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

typedef struct allocation_case {
    const float *numbers;
    int kind;
    bool keeps_packed;
} allocation_case;

static ith_status create_and_apply(ith_context *ctx, void *user)
{
    const allocation_case *one = user;
    const float *w = one->numbers, *x = w + 64 * 9;
    float y[64];
    one_layer layer;
    ith_status status =
        one_layer_make(ctx, 9, 64, w, ITH_F32, NULL, operand_kinds[one->kind], one->keeps_packed, &layer);
    if (!status)
        status = one_layer_apply(ctx, &layer, 1, x, y);
    one_layer_free(ctx, &layer);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    float *numbers = random_floats(&seed, 64 * 9 + 9);
    for (int i = 0; i < 4; i++) {
        allocation_case one = {numbers, i / 2, i % 2};
        assert_int_equal(refuse_every_allocation(create_and_apply, &one, 1), 4);
    }
    free(numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refusals, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(test_interruption, context_set_up, context_tear_down),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
