/* SPDX-License-Identifier: Apache-2.0 */
/* The three precisions on machines with different instruction sets, the rule of auto, and its sentence. */
#include "kernels/product.h"
#include "support/engine/kinds.h"
#include "support/fixture.h"

#include "base/cpu.h"

#include <stdio.h>
#include <string.h>

/* A context that has no instruction sets but these. */
static ith_context *limited(uint32_t cpu)
{
    ith_context_options options = {.struct_size = sizeof options, .cpu_mask = cpu};
    ith_context *out = NULL;
    assert_int_equal(ith_context_create(&options, &out), ITH_OK);
    return out;
}

static void assert_types(ith_number_types types, ith_dtype rounded, ith_dtype multiplied)
{
    assert_int_equal(types.products.stored, rounded);
    assert_int_equal(types.products.rounded, rounded);
    assert_int_equal(types.products.multiplied, multiplied);
    assert_int_equal(types.attention, rounded);
}

static void f32_is_f32_everywhere(void **state)
{
    (void)state;
    assert_types(ith_number_types_choose(context, ITH_PRECISION_F32), ITH_F32, ITH_F32);
}

static void without_bf16_instructions_f32_multiplies(void **state)
{
    (void)state;
    const uint32_t masks[] = {ITH_CPU_BASELINE, ITH_CPU_BASELINE | ITH_CPU_AVX2,
                              ITH_CPU_BASELINE | ITH_CPU_AVX2 | ITH_CPU_AVX512};
    for (int i = 0; i < 3; i++) {
        ith_context *own = limited(masks[i]);
        assert_types(ith_number_types_choose(own, ITH_PRECISION_BF16), ITH_BF16, ITH_F32);
        assert_int_equal(ith_precision_resolve(own, ITH_PRECISION_AUTO), ITH_PRECISION_F32);
        assert_int_equal(ith_precision_resolve(own, ITH_PRECISION_BF16), ITH_PRECISION_BF16);
        ith_context_destroy(&own);
    }
}

static void auto_follows_the_rule(void **state)
{
    (void)state;
    uint32_t cpu = ith_context_cpu(context);
    bool fast = ith_product_kernel_choose(ITH_BF16, cpu) && ((cpu & ITH_CPU_AMX_BF16) || ith_cpu_is_amd());
    ith_precision precision = ith_precision_resolve(context, ITH_PRECISION_AUTO);
    assert_int_equal(precision, fast ? ITH_PRECISION_BF16 : ITH_PRECISION_F32);
    assert_types(ith_number_types_choose(context, ITH_PRECISION_BF16), ITH_BF16, fast ? ITH_BF16 : ITH_F32);
    char text[200], expected[200];
    ith_precision_describe(context, ITH_PRECISION_AUTO, text, sizeof text);
    snprintf(expected, sizeof expected, "%s: chosen because", ith_precision_name(precision));
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
}

static void sentences(void **state)
{
    (void)state;
    char text[200], few[8];
    ith_context *own = limited(ITH_CPU_BASELINE);
    ith_precision_describe(own, ITH_PRECISION_F32, text, sizeof text);
    assert_string_equal(text, "f32");
    ith_precision_describe(own, ITH_PRECISION_BF16, text, sizeof text);
    assert_non_null(strstr(text, "multiplied in f32"));
    ith_precision_describe(own, ITH_PRECISION_BF16, few, sizeof few);
    assert_string_equal(few, "bf16: o");
    ith_precision_describe(own, (ith_precision)7, text, sizeof text);
    assert_string_equal(text, "unknown");
    ith_precision_describe(NULL, ITH_PRECISION_BF16, text, sizeof text);
    assert_string_equal(text, "");
    ith_precision_describe(own, ITH_PRECISION_BF16, NULL, 5);
    ith_context_destroy(&own);
    assert_string_equal(ith_precision_name(ITH_PRECISION_AUTO), "auto");
    assert_string_equal(ith_precision_name((ith_precision)3), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_is_f32_everywhere),
        cmocka_unit_test(without_bf16_instructions_f32_multiplies),
        cmocka_unit_test(auto_follows_the_rule),
        cmocka_unit_test(sentences),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
