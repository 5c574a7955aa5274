/* SPDX-License-Identifier: Apache-2.0 */
/* A store of random tensors: types, shapes, moments, memory counted before anything is made, refused allocations. */
#include "base/context.h"
#include "files/store.h"
#include "support/fixture.h"
#include "support/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t shape[] = {60, 5, 40}, length = 7;

/* Takes two tensors. With `wanted` false they are only counted. */
static ith_status take(ith_context *ctx, ith_store *store, bool wanted, const ith_tensor *tensors[2])
{
    ith_status status = ith_store_take(ctx, store, "a.weight", 3, shape, wanted ? &tensors[0] : NULL);
    return status ? status : ith_store_take(ctx, store, "a.bias", 1, &length, wanted ? &tensors[1] : NULL);
}

/* Numbers have mean 0 and, where a row has n numbers, variance 1/n; the rows of a matrix differ. */
static void numbers_have_their_moments(void **state)
{
    (void)state;
    ith_context *ctx = context;
    const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    for (int i = 0; i < 3; i++) {
        ith_store *store = NULL;
        const ith_tensor *tensors[2], *again[2];
        float numbers[12000];
        double sum = 0, squares = 0;
        assert_int_equal(ith_store_open_random(ctx, types[i], &store), ITH_OK);
        assert_int_equal(take(ctx, store, true, tensors), ITH_OK);
        assert_int_equal(take(ctx, store, true, again), ITH_OK);
        assert_ptr_equal(tensors[0], again[0]);
        assert_int_equal(tensors[0]->dtype, types[i]);
        assert_int_equal(tensors[0]->dims, 3);
        assert_memory_equal(tensors[0]->shape, shape, sizeof shape);
        assert_int_equal(ith_tensor_elements(tensors[0]), 12000);
        assert_int_equal(ith_tensor_elements(tensors[1]), 7);
        assert_int_equal((uintptr_t)tensors[0]->data % 64, 0);
        assert_int_equal(ith_tensor_to_f32(ctx, tensors[0], numbers), ITH_OK);
        for (int j = 0; j < 12000; j++)
            sum += numbers[j], squares += numbers[j] * numbers[j];
        assert_true(fabs(sum / 12000) < 4 * sqrt(1 / 200.0 / 12000));
        assert_true(fabs(squares / 12000 * 200 - 1) < 0.05);
        assert_memory_not_equal(numbers, numbers + 200, 200 * sizeof *numbers);
        ith_store_release(store, tensors[0]);
        assert_int_equal(ith_store_check_all_taken(ctx, store), ITH_OK);
        ith_store_close(&store);
    }
}

/* Matrices have the quantised type, and finite numbers; tensors that files do not quantise are BF16. */
static void matrices_may_be_packed(void **state)
{
    (void)state;
    ith_context *ctx = context;
    const ith_dtype types[] = {ITH_F8_E4M3, ITH_F8_E5M2, ITH_I8,   ITH_Q8_0, ITH_Q6_K, ITH_Q5_K, ITH_Q4_K,
                               ITH_Q3_K,    ITH_Q2_K,    ITH_Q5_0, ITH_Q5_1, ITH_Q4_0, ITH_Q4_1, ITH_IQ4_NL};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ith_store *store = NULL, *counted = NULL;
        const ith_tensor *matrix, *narrow, *vector;
        float numbers[3 * 512];
        int zeros = 0;
        assert_int_equal(ith_store_open_random(ctx, types[i], &store), ITH_OK);
        assert_int_equal(ith_store_take(ctx, store, "a", 2, (int64_t[]){3, 512}, &matrix), ITH_OK);
        assert_int_equal(ith_store_take(ctx, store, "b", 2, (int64_t[]){3, 17}, &narrow), ITH_OK);
        assert_int_equal(ith_store_take(ctx, store, "c", 1, (int64_t[]){512}, &vector), ITH_OK);
        assert_int_equal(matrix->dtype, types[i]);
        assert_int_equal(narrow->dtype, ith_dtype_run(types[i]) > 1 ? ITH_BF16 : types[i]);
        assert_int_equal(vector->dtype, ITH_BF16);
        assert_int_equal(ith_tensor_to_f32(ctx, matrix, numbers), ITH_OK);
        for (int j = 0; j < 3 * 512; j++) {
            assert_true(isfinite(numbers[j]) && fabsf(numbers[j]) < 32);
            zeros += numbers[j] == 0;
        }
        assert_true(zeros < 3 * 512 / 2);
        assert_int_equal(ith_store_open_random(ctx, types[i], &counted), ITH_OK);
        assert_int_equal(ith_store_take(ctx, counted, "a", 2, (int64_t[]){3, 512}, NULL), ITH_OK);
        assert_true(ith_store_random_bytes(counted) > matrix->bytes);
        ith_store_close(&counted);
        ith_store_close(&store);
    }
}

/* The bytes that a store counts are the bytes that a store with tensors holds. */
static void bytes_are_counted_before(void **state)
{
    (void)state;
    ith_context *ctx = NULL;
    ith_store *counted = NULL, *made = NULL;
    const ith_tensor *tensors[2];
    assert_int_equal(ith_context_create(NULL, &ctx), ITH_OK);
    const int64_t empty = memory_of(ctx).current_bytes;
    assert_int_equal(ith_store_open_random(ctx, ITH_BF16, &counted), ITH_OK);
    assert_int_equal(take(ctx, counted, false, tensors), ITH_OK);
    const int64_t bytes = ith_store_random_bytes(counted);
    ith_store_close(&counted);
    assert_int_equal(ith_store_open_random(ctx, ITH_BF16, &made), ITH_OK);
    assert_int_equal(take(ctx, made, true, tensors), ITH_OK);
    assert_int_equal(memory_of(ctx).current_bytes - empty, bytes);
    ith_store_close(&made);
    assert_int_equal(memory_of(ctx).current_bytes, empty);
    ith_context_destroy(&ctx);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    ith_context *ctx = context;
    ith_store *store = NULL;
    assert_int_equal(ith_store_open_random(ctx, ITH_I32, &store), ITH_ERR_ARGUMENT);
    assert_null(store);
    assert_int_equal(ith_store_open_random(ctx, ITH_F32, &store), ITH_OK);
    assert_int_equal(ith_store_take(ctx, store, "a", 2, (int64_t[]){INT64_MAX / 4, 3}, NULL), ITH_ERR_MEMORY);
    assert_int_equal(ith_store_take(ctx, store, "b", 1, (int64_t[]){INT64_MAX / 4 - 4}, NULL), ITH_ERR_MEMORY);
    ith_store_close(&store);
}

static ith_status take_all(ith_context *ctx, void *user)
{
    (void)user;
    ith_store *store = NULL;
    const ith_tensor *tensors[2];
    ith_status status = ith_store_open_random(ctx, ITH_F32, &store);
    if (!status)
        status = take(ctx, store, true, tensors);
    ith_store_close(&store);
    return status;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(take_all, NULL, 1) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_have_their_moments, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(matrices_may_be_packed, context_set_up, context_tear_down),
        cmocka_unit_test(bytes_are_counted_before),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, context_set_up, context_tear_down),
        cmocka_unit_test(allocations_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
