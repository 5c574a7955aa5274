/* Peak rates: which rows a machine has, which of them count, and the best of those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../../src/kernels/peak.h"

#include <string.h>

enum { ROWS_MAX = 16 };

typedef struct row {
    const char *name;
    bool counts;
    double rate;
} row;

/* The rows of a machine with these instruction sets (0: all that there are). */
static int list(uint32_t cpu_mask, row rows[ROWS_MAX])
{
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = cpu_mask;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    int count = 0;
    while (count < ROWS_MAX &&
           ith_peak_rate(context, count, 1, 0.01, &rows[count].name, &rows[count].counts, &rows[count].rate))
        count++;
    assert_in_range(count, 1, ROWS_MAX - 1);
    row untouched = {.name = "untouched"};
    assert_false(ith_peak_rate(context, -1, 1, 0.01, &untouched.name, &untouched.counts, &untouched.rate));
    assert_string_equal(untouched.name, "untouched");
    ith_context_destroy(&context);
    return count;
}

static void test_rows(void **state)
{
    (void)state;
    row rows[ROWS_MAX];
    int count = list(0, rows);
    for (int i = 0; i < count; i++) {
        assert_true(rows[i].rate > 0.01 && rows[i].rate < 1e5);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(rows[i].name, rows[j].name);
        bool vector = strcmp(rows[i].name, "fp16_avx512") != 0 && strstr(rows[i].name, "amx") == NULL;
        assert_int_equal(rows[i].counts, vector);
    }
}

/* Without its instruction sets a machine is left with plain C. */
static void test_mask(void **state)
{
    (void)state;
    row rows[ROWS_MAX];
    assert_int_equal(list(ITH_CPU_BASELINE, rows), 1);
    assert_string_equal(rows[0].name, "f32_ref");
    assert_true(rows[0].counts);
}

/* The best that counts: at least about as fast as each of them, and for plain C alone about its own rate. */
static void test_measure(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    row rows[ROWS_MAX];
    int count = list(0, rows);
    double best = ith_peak_measure(ith_context_cpu(context), 1, 0.2),
           plain = ith_peak_measure(ITH_CPU_BASELINE, 1, 0.05);
    for (int i = 0; i < count; i++)
        assert_true(!rows[i].counts || rows[i].rate < 4 * best); /* other programs may have run in between */
    assert_true(plain > 0 && plain < 4 * best);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_mask),
                                       cmocka_unit_test(test_measure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
