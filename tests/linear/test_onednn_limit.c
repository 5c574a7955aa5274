/* SPDX-License-Identifier: Apache-2.0 */
/* ITHACA_CPU keeps oneDNN to its sets too. A program of its own: what oneDNN may use is settled once for a process. */
#include "linear/onednn.h"

#include <oneapi/dnnl/dnnl.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void products_keep_within_the_environment(void **state)
{
    (void)state;
    ith_context *context = NULL;
    ith_onednn_op *op = NULL;
    const ith_onednn_conv shape = {
        .in = 16, .out = 16, .frames = 1, .kernel = 3, .height = 8, .width = 8, .type = ITH_F32};
    assert_int_equal(setenv("ITHACA_CPU", "avx2", 1), 0);
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_onednn_conv_create(context, &shape, &op), ITH_OK);
    assert_int_equal((int)dnnl_get_effective_cpu_isa() & ~(int)dnnl_cpu_isa_avx2, 0);
    ith_onednn_op_destroy(context, &op);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_keep_within_the_environment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
