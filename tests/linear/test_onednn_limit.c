/* SPDX-License-Identifier: Apache-2.0 */
/* ITHACA_CPU keeps oneDNN to its sets too. A program of its own: what oneDNN may use is settled once for a process. */
#include "support/engine/one_layer.h"

#include <oneapi/dnnl/dnnl.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 3, WIDTH = 64 };

static void products_keep_within_the_environment(void **state)
{
    (void)state;
    ith_context *context = NULL;
    one_layer layer;
    float weight[WIDTH * WIDTH], x[ROWS * WIDTH], y[ROWS * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++)
        weight[i] = i % (WIDTH + 1) ? 0.0f : 2.0f;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)i;
    assert_int_equal(setenv("ITHACA_CPU", "avx2", 1), 0);
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = one_layer_make(context, WIDTH, WIDTH, weight, ITH_F32, NULL, ith_operands_f32(), &layer);
    assert_int_equal(status, ITH_OK);
    assert_int_equal(one_layer_apply(context, &layer, ROWS, x, y), ITH_OK);
    for (int i = 0; i < ROWS * WIDTH; i++)
        assert_true(y[i] == 2.0f * x[i]);
    assert_int_equal((int)dnnl_get_effective_cpu_isa() & ~(int)dnnl_cpu_isa_avx2, 0);
    one_layer_free(context, &layer);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_keep_within_the_environment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
