/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors may lie all four in one buffer, and with heads before rows. */
#include "support/random.h"

#include <ithaca/ithaca.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, HEADS = 3, DIM = 8, LENGTH = 37, ROW = HEADS * DIM, COUNT = BATCH * LENGTH * ROW };

static ith_context *context;

static ith_status attend(const ith_attn_problem *problem, const ith_attn_tensors *tensors)
{
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.kernel = "f32_ref";
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, problem, &options, NULL, &plan);
    if (!status)
        status = ith_plan_execute(plan, tensors);
    ith_plan_destroy(&plan);
    return status;
}

/* q, k, v and o in four tensors [B, S, H, D]. */
static float *plain(void)
{
    float *all = malloc(4 * COUNT * sizeof *all);
    uint64_t seed = 7;
    for (int i = 0; i < 3 * COUNT; i++)
        all[i] = random_signed(&seed);
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = BATCH, problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    t.q = all, t.k = all + COUNT, t.v = all + 2 * COUNT, t.o = all + 3 * COUNT;
    assert_int_equal(attend(&problem, &t), ITH_OK);
    return all;
}

/* [B, S, {q, k, v, o}, H, D] */
static void all_in_one_buffer(void **state)
{
    (void)state;
    float *all = plain(), *fused = malloc((4 * COUNT + 1) * sizeof *fused);
    for (int row = 0; row < BATCH * LENGTH; row++)
        for (int which = 0; which < 4; which++)
            for (int i = 0; i < ROW; i++)
                fused[(row * 4 + which) * ROW + i] = which < 3 ? all[which * COUNT + row * ROW + i] : -77;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = BATCH, problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = problem.o_row_stride = 4 * ROW;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    t.q = fused, t.k = fused + ROW, t.v = fused + 2 * ROW, t.o = fused + 3 * ROW;
    assert_int_equal(attend(&problem, &t), ITH_OK);
    for (int row = 0; row < BATCH * LENGTH; row++)
        for (int which = 0; which < 4; which++)
            assert_memory_equal(fused + (row * 4 + which) * ROW, all + which * COUNT + row * ROW, ROW * sizeof *all);
    t.o = fused + 3 * ROW - 1; /* refused: one column too early, one too late, and with another row stride */
    assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "o overlaps v in memory; both may lie in one buffer only with"));
    t.o = fused + 3 * ROW + 1;
    assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "o overlaps q in memory"));
    t.o = fused + 3 * ROW, problem.o_row_stride = 3 * ROW;
    assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
    problem.o_row_stride = 4 * ROW, problem.o_batch_stride = 4 * LENGTH * ROW + 1;
    assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
    free(all), free(fused);
}

/* [B, H, S, D] as B * H entries of one head. */
static void heads_before_rows(void **state)
{
    (void)state;
    float *all = plain(), *turned = malloc(4 * COUNT * sizeof *turned);
    for (int which = 0; which < 4; which++)
        for (int b = 0; b < BATCH; b++)
            for (int h = 0; h < HEADS; h++)
                for (int s = 0; s < LENGTH; s++)
                    memcpy(turned + which * COUNT + ((b * HEADS + h) * LENGTH + s) * DIM,
                           all + which * COUNT + (b * LENGTH + s) * ROW + h * DIM, DIM * sizeof *all);
    float *expected = turned + 3 * COUNT, *o = malloc(COUNT * sizeof *o);
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = BATCH * HEADS, problem.heads = 1, problem.head_dim = DIM;
    problem.q_len = problem.kv_len = LENGTH;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    t.q = turned, t.k = turned + COUNT, t.v = turned + 2 * COUNT, t.o = o;
    assert_int_equal(attend(&problem, &t), ITH_OK);
    assert_memory_equal(o, expected, COUNT * sizeof *o);
    free(all), free(turned), free(o);
}

/* Batch entries may lie side by side in [batch, rows, width] and in [rows, batch, width]. If they overlap by one
 * element, they are refused. */
static void batch_entries_may_touch(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, row_stride, batch_stride;
        bool legal;
    } rows[] = {
        {3, ROW, 3 * ROW, true},
        {3, ROW, 3 * ROW - 1, false},
        {3, ROW + 6, 3 * ROW + 12, true},
        {3, ROW + 6, 3 * ROW + 11, false},
        {3, 4 * ROW, ROW, true},
        {3, 4 * ROW - 1, ROW, false},
        {3, 4 * ROW + 6, ROW + 2, true},
        {3, 4 * ROW + 5, ROW + 2, false},
        {1, 0, ROW, true},
        {1, 0, ROW - 1, false},
        {3, 9 * ROW, ROW - 1, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
        problem.batch = 4, problem.heads = HEADS, problem.head_dim = DIM;
        problem.q_len = problem.kv_len = rows[i].rows;
        problem.k_row_stride = rows[i].row_stride, problem.k_batch_stride = rows[i].batch_stride;
        ith_plan *plan = NULL;
        ith_status status = ith_plan_create(context, &problem, NULL, NULL, &plan);
        ith_plan_destroy(&plan);
        if (status != (rows[i].legal ? ITH_OK : ITH_ERR_ARGUMENT))
            fail_msg("row %zu: %s", i, ith_context_error(context));
        if (status)
            assert_non_null(strstr(ith_context_error(context), "so that batch entries overlap"));
    }
}

/* o may begin where another tensor ends, but not before its end. */
static void each_tensor_is_seen_to_its_end(void **state)
{
    (void)state;
    enum { MASK = BATCH * LENGTH * LENGTH };
    float *tensors = calloc(3 * COUNT, sizeof *tensors), *memory = calloc(MASK + COUNT, sizeof *memory);
    for (int which = 0; which < 5; which++) {
        static const char *const names[] = {"lse", "key_bias", "kv_lengths", "mask", "mask"};
        const int64_t numbers[] = {BATCH * HEADS * LENGTH, BATCH * LENGTH, BATCH, MASK, MASK / 2};
        ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
        problem.batch = problem.mask_batch = BATCH, problem.heads = HEADS, problem.head_dim = DIM;
        problem.q_len = problem.kv_len = LENGTH;
        problem.has_key_bias = which == 1, problem.has_kv_lengths = which == 2;
        problem.mask = which == 3 ? ITH_MASK_ADDITIVE : which == 4 ? ITH_MASK_BOOL : ITH_MASK_NONE;
        if (which == 4)
            problem.dtype = ITH_F16;
        const int64_t element = which == 4 ? 2 : 4;
        memset(memory, 0, (MASK + COUNT) * sizeof *memory);
        ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
        t.q = tensors, t.k = tensors + COUNT, t.v = tensors + 2 * COUNT;
        t.lse = which == 0 ? memory : NULL, t.key_bias = which == 1 ? memory : NULL;
        t.kv_lengths = which == 2 ? (int32_t *)(void *)memory : NULL, t.mask = which >= 3 ? memory : NULL;
        t.o = (char *)memory + numbers[which] * element;
        if (attend(&problem, &t))
            fail_msg("%s: %s", names[which], ith_context_error(context));
        t.o = (char *)t.o - element;
        assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "o overlaps "));
        assert_non_null(strstr(ith_context_error(context), names[which]));
    }
    free(tensors), free(memory);
}

static void lengths_of_keys_have_limits(void **state)
{
    (void)state;
    float *all = plain();
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = BATCH, problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    problem.has_kv_lengths = true;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    t.q = all, t.k = all + COUNT, t.v = all + 2 * COUNT, t.o = all + 3 * COUNT;
    for (int32_t length = -1; length <= LENGTH + 1; length += length == 0 ? LENGTH : 1) {
        const int32_t lengths[BATCH] = {1, length};
        const bool legal = length >= 0 && length <= LENGTH;
        t.kv_lengths = lengths;
        assert_int_equal(attend(&problem, &t), legal ? ITH_OK : ITH_ERR_ARGUMENT);
        if (!legal)
            assert_non_null(strstr(ith_context_error(context), "kv_lengths[1] is "));
    }
    free(all);
}

static void o_may_be_q_with_equal_strides(void **state)
{
    (void)state;
    float *all = plain();
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = BATCH, problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH - 1;
    problem.q_batch_stride = (LENGTH - 1) * ROW;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    t.q = t.o = all, t.k = all + COUNT, t.v = all + 2 * COUNT;
    problem.o_batch_stride = LENGTH * ROW;
    assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "o overlaps q in memory"));
    problem.o_batch_stride = problem.q_batch_stride;
    assert_int_equal(attend(&problem, &t), ITH_OK);
    free(all);
}

static void lse_lies_over_no_other_tensor(void **state)
{
    (void)state;
    float *all = plain(), lse[2 * BATCH * HEADS * LENGTH] = {0};
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = BATCH, problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    problem.has_key_bias = true;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    t.q = all, t.k = all + COUNT, t.v = all + 2 * COUNT, t.o = all + 3 * COUNT;
    t.key_bias = t.lse = lse;
    assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "lse overlaps key_bias in memory, and must not"));
    t.lse = lse + BATCH * LENGTH;
    assert_int_equal(attend(&problem, &t), ITH_OK);
    t.lse = all + 3 * COUNT - 1;
    assert_int_equal(attend(&problem, &t), ITH_ERR_ARGUMENT);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_in_one_buffer),
        cmocka_unit_test(heads_before_rows),
        cmocka_unit_test(batch_entries_may_touch),
        cmocka_unit_test(each_tensor_is_seen_to_its_end),
        cmocka_unit_test(lengths_of_keys_have_limits),
        cmocka_unit_test(o_may_be_q_with_equal_strides),
        cmocka_unit_test(lse_lies_over_no_other_tensor),
    };
    if (ith_context_create(NULL, &context))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ith_context_destroy(&context);
    return failed;
}
