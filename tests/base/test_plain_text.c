/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and letters of texts that programs read are the same in every locale. */
#include "base/plain_text.h"
#include "support/other_locale.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_text(double value, int digits, const char *wanted)
{
    char text[40];
    ith_number_print(value, digits, text, sizeof text);
    assert_string_equal(text, wanted);
}

static void numbers_are_written(void **state)
{
    (void)state;
    char text[6] = "#####";
    expect_text(0.5, 17, "0.5");
    expect_text(-1234567.25, 9, "-1234567.25");
    expect_text(1e-6, 17, "9.9999999999999995e-07");
    expect_text(3.5, 6, "3.5");
    expect_text(1e300, 6, "1e+300");
    expect_text((double)INFINITY, 6, "inf");
    expect_text((double)NAN, 6, "nan");
    ith_number_print(0.12345, 5, text, 4);
    assert_memory_equal(text, "0.1\0#", 5);
}

static void expect_number(const char *text, double wanted, const char *rest)
{
    char *end = NULL;
    errno = 0;
    assert_true(ith_number_read(text, &end) == wanted);
    assert_string_equal(end, rest);
}

static void numbers_are_read(void **state)
{
    (void)state;
    char *end = NULL;
    expect_number("0.5", 0.5, "");
    expect_number("0,5", 0, ",5");
    expect_number("-1e-3x", -1e-3, "x");
    expect_number("1234.5", 1234.5, "");
    expect_number("", 0, "");
    errno = 0;
    assert_true(isinf(ith_number_read("1e999", &end)) && errno == ERANGE);
}

static void letters_are_compared(void **state)
{
    (void)state;
    assert_true(ith_begins_with("HIGH_noise", "high"));
    assert_true(ith_begins_with("high", "high"));
    assert_false(ith_begins_with("hig", "high"));
    assert_true(ith_has_part("x/Wan_LIGHTNING.safetensors", "lightning"));
    assert_false(ith_has_part("x/Wan_LIGHTNIN", "lightning"));
    assert_true(ith_has_part("", ""));
    assert_true(ith_is_listed("cpu,cpuacct", ',', "cpu"));
    assert_true(ith_is_listed("cpuacct,cpu", ',', "cpu"));
    assert_false(ith_is_listed("cpuacct,cpuset", ',', "cpu"));
    assert_false(ith_is_listed("", ',', "cpu"));
    assert_true(ith_is_capital('I') && !ith_is_capital('i') && ith_is_small_letter('i'));
    assert_false(ith_is_small_letter('\xe4') || ith_is_capital('\xc4') || ith_is_small_letter('{'));
}

static void everything(void **state)
{
    char text[16];
    const char *point = localeconv()->decimal_point;
    numbers_are_written(state);
    numbers_are_read(state);
    letters_are_compared(state);
    snprintf(text, sizeof text, "%g", 0.5); /* the caller's locale is back */
    assert_memory_equal(text + 1, point, strlen(point));
    assert_string_not_equal(point, ".");
}

static void in_turkish(void **state)
{
    in_other_locale("tr_TR.UTF-8", everything, state);
}

static void in_pashto(void **state)
{
    in_other_locale("ps_AF.UTF-8", everything, state);
}

/* A thread may have a locale of its own. */
static void in_a_locale_of_the_thread(void **state)
{
    other_locale_make("tr_TR.UTF-8");
    locale_t own = newlocale(LC_ALL_MASK, "tr_TR.UTF-8", (locale_t)0);
    const locale_t before = uselocale(own);
    everything(state);
    assert_true(uselocale(before) == own);
    freelocale(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(letters_are_compared),
        cmocka_unit_test(in_turkish),
        cmocka_unit_test(in_pashto),
        cmocka_unit_test(in_a_locale_of_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
