/* SPDX-License-Identifier: Apache-2.0 */
/* Peak rates: the rows that a machine has, and the peak of a kernel, which is the peak of its own instructions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../src/kernels/peak.h"
#include "support/in_range.h"
#include "support/machine.h"
#include "support/other_locale.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 16 };

static ith_context *masked_context(uint32_t cpu_mask)
{
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = cpu_mask;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    return context;
}

/* Lists the rows of a machine with these instruction sets (0: all sets of this machine). */
static int list(uint32_t cpu_mask, ith_peak rows[ROWS_MAX])
{
    ith_context *context = masked_context(cpu_mask);
    int count = 0;
    for (; count < ROWS_MAX; count++) {
        rows[count] = (ith_peak)ITH_PEAK_INIT;
        assert_int_equal(ith_peak_rate(context, count, 1, 0.01, &rows[count]), ITH_OK);
        if (!rows[count].name[0])
            break;
    }
    assert_true(in_range(count, 1, ROWS_MAX - 1));
    assert_true(rows[count].gflops == 0);
    ith_peak untouched = {.struct_size = sizeof untouched, .name = "untouched"};
    assert_int_equal(ith_peak_rate(context, -1, 1, 0.01, &untouched), ITH_ERR_ARGUMENT);
    assert_string_equal(untouched.name, "untouched");
    ith_context_destroy(&context);
    return count;
}

static void rows_have_names_and_rates(void **state)
{
    (void)state;
    ith_peak rows[ROWS_MAX];
    int count = list(0, rows);
    for (int i = 0; i < count; i++) {
        assert_true(rows[i].gflops > 0.01 && rows[i].gflops < 1e5);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(rows[i].name, rows[j].name);
    }
}

/* Without instruction sets a machine has only the row of plain C. */
static void masks_hide_rows(void **state)
{
    (void)state;
    ith_peak rows[ROWS_MAX];
    assert_int_equal(list(ITH_CPU_BASELINE, rows), 1);
    assert_string_equal(rows[0].name, "f32_ref");
}

/* Checks the name of the peak of a kernel on a machine with these instruction sets. */
static void expect_peak(const char *kernel, uint32_t cpu, const char *peak)
{
    char text[64];
    const ith_attn_kernel *found = ith_attn_kernel_named(kernel);
    if (!found) /* a kernel of another processor, or of a plugin that was not built */
        return;
    assert_string_equal(ith_peak_describe(found, ITH_CPU_BASELINE | cpu, text, sizeof text), peak);
}

static void peaks_are_of_the_instructions_used(void **state)
{
    (void)state;
    uint32_t avx512 = ITH_CPU_AVX2 | ITH_CPU_AVX512, bf16 = avx512 | ITH_CPU_AVX512_BF16;
    uint32_t all = bf16 | ITH_CPU_AVX512_FP16 | ITH_CPU_AMX_BF16;
    expect_peak("f32_ref", all, "f32_ref");
    expect_peak("f32_avx2", all, "f32_avx2");
    expect_peak("f32_avx512", all, "f32_avx512");
    expect_peak("bf16_avx512bf16", all, "bf16_avx512bf16");
    expect_peak("bf16_avx512fp16", all, "f32_avx512+f16_avx512fp16");
    expect_peak("bf16_amx", all, "bf16_amx");
    expect_peak("f32_amx", all, "bf16_amx/6");
    expect_peak("f16_amx", all, "bf16_amx/3.5");
    expect_peak("bf16_amx", bf16, "none");
    expect_peak("f32_neon", ITH_CPU_NEON, "f32_neon");
}

static void peaks_have_their_names_in_every_locale(void **state)
{
    in_other_locale("tr_TR.UTF-8", peaks_are_of_the_instructions_used, state);
}

/* Checks the peak of a kernel if the row for logits has a rate of 240, and the row for outputs 480. */
static void expect_combined(const char *kernel, double peak)
{
    const ith_attn_kernel *found = ith_attn_kernel_named(kernel);
    if (found)
        assert_true(fabs(ith_peak_combine(found, 240, 480) - peak) < 1e-9 * peak);
}

static void peaks_follow_from_both_products(void **state)
{
    (void)state;
    expect_combined("f32_ref", 320);
    expect_combined("bf16_avx512fp16", 320);
    expect_combined("bf16_amx", 320);
    expect_combined("f32_amx", 320.0 / 6);
    expect_combined("f16_amx", 2 / (4.0 / 240 + 3.0 / 480));
}

/* Products that take several hardware products each have a part of the peak. */
static void a_product_has_the_peak_of_its_instructions(void **state)
{
    (void)state;
    char text[64];
    const ith_instructions plain = {"f32_ref", 1}, split = {"f32_ref", 6}, none = {"no_such", 1};
    assert_string_equal(ith_peak_describe_product(&plain, ITH_CPU_BASELINE, text, sizeof text), "f32_ref");
    assert_string_equal(ith_peak_describe_product(&split, ITH_CPU_BASELINE, text, sizeof text), "f32_ref/6");
    assert_string_equal(ith_peak_describe_product(&none, ITH_CPU_BASELINE, text, sizeof text), "none");
    double whole = 0, part = 0;
    bool fits = false;
    for (int i = 0; i < 20 || (!fits && i < 1000); i++) { /* in turn, because the processor may slow down or be busy */
        whole = fmax(whole, ith_peak_of_product(&plain, ITH_CPU_BASELINE, 1, 0.002));
        part = fmax(part, ith_peak_of_product(&split, ITH_CPU_BASELINE, 1, 0.002));
        fits = part > whole / 12 && part < whole / 3;
    }
    assert_true(fits);
    assert_true(ith_peak_of_product(&none, ITH_CPU_BASELINE, 1, 0.002) == 0);
}

static void every_kernel_has_a_peak(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    int tested = 0;
    const ith_attn_kernel *kernel;
    for (int i = 0; (kernel = ith_attn_kernel_at(i)); i++) {
        ith_peak peak = ITH_PEAK_INIT;
        ith_status status = ith_kernel_peak(context, kernel->name, 1, 0.01, &peak);
        if (!machine_has(kernel->name, kernel->cpu)) {
            assert_int_equal(status, ITH_ERR_UNSUPPORTED);
            assert_non_null(strstr(ith_context_error(context), "which this machine lacks"));
            continue;
        }
        assert_int_equal(status, ITH_OK);
        assert_true(peak.gflops > 0.01 && peak.gflops < 1e5);
        assert_string_not_equal(peak.name, "");
        assert_string_not_equal(peak.name, "none");
        tested++;
    }
    assert_true(tested > 0);
    ith_context_destroy(&context);
}

static void an_unknown_kernel_is_refused(void **state)
{
    (void)state;
    ith_context *context = masked_context(0);
    ith_peak peak = ITH_PEAK_INIT;
    assert_int_equal(ith_kernel_peak(context, "abacus", 1, 0.01, &peak), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "no kernel is named 'abacus'"));
    assert_int_equal(ith_kernel_peak(context, "f32_ref", 0, 0.001, &peak), ITH_OK);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_names_and_rates),
        cmocka_unit_test(masks_hide_rows),
        cmocka_unit_test(peaks_are_of_the_instructions_used),
        cmocka_unit_test(peaks_have_their_names_in_every_locale),
        cmocka_unit_test(peaks_follow_from_both_products),
        cmocka_unit_test(a_product_has_the_peak_of_its_instructions),
        cmocka_unit_test(every_kernel_has_a_peak),
        cmocka_unit_test(an_unknown_kernel_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
