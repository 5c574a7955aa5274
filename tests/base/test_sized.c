/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of callers that were compiled against an earlier or a later header. */
#include "base/sized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static ith_context *context;

/* A struct in three versions. */
typedef struct first_version {
    size_t struct_size;
    int64_t old;
} first_version;

typedef struct example {
    size_t struct_size;
    int64_t old;
    double newer;
} example;
#define EXAMPLE_INIT                                                                                                   \
    {                                                                                                                  \
        sizeof(example), 1, 2.5                                                                                        \
    }

typedef struct next_version {
    size_t struct_size;
    int64_t old;
    double newer;
    int64_t newest;
} next_version;

static void read_takes_what_there_is(void **state)
{
    (void)state;
    example full = EXAMPLE_INIT;
    const first_version shorter = {sizeof shorter, 7};
    assert_int_equal(ITH_SIZED_READ(context, example, EXAMPLE_INIT, &shorter, &full), ITH_OK);
    assert_true(full.struct_size == sizeof full && full.old == 7 && full.newer == 2.5);
    const example same = {sizeof same, 8, 3};
    assert_int_equal(ITH_SIZED_READ(context, example, EXAMPLE_INIT, &same, &full), ITH_OK);
    assert_true(full.struct_size == sizeof full && full.old == 8 && full.newer == 3);
    next_version longer = {sizeof longer, 9, 4, 0};
    assert_int_equal(ITH_SIZED_READ(context, example, EXAMPLE_INIT, &longer, &full), ITH_OK);
    assert_true(full.struct_size == sizeof full && full.old == 9 && full.newer == 4);
    longer.newest = 1;
    longer.old = 10;
    assert_int_equal(ITH_SIZED_READ(context, example, EXAMPLE_INIT, &longer, &full), ITH_ERR_ARGUMENT);
    assert_string_equal(ith_context_error(context),
                        "the example has 32 bytes, of which this library (0.2.0) knows 24, and byte 24 is not 0: a "
                        "later version's field is set");
    assert_int_equal(full.old, 9);
}

static void fill_gives_what_fits(void **state)
{
    (void)state;
    const example full = {sizeof full, 5, 6};
    struct {
        first_version given;
        int64_t guard;
    } shorter = {{sizeof shorter.given, 0}, 77};
    assert_int_equal(ITH_SIZED_FILL(context, example, EXAMPLE_INIT, &shorter, &full), ITH_OK);
    assert_true(shorter.given.struct_size == sizeof shorter.given && shorter.given.old == 5 && shorter.guard == 77);
    next_version longer = {sizeof longer, 0, 0, 78};
    assert_int_equal(ITH_SIZED_FILL(context, example, EXAMPLE_INIT, &longer, &full), ITH_OK);
    assert_true(longer.struct_size == sizeof longer && longer.old == 5 && longer.newer == 6 && longer.newest == 78);
}

static ith_status check_array(const void *first, int64_t count)
{
    return ith_sized_check_array(context, "example", "EXAMPLE_INIT", first, count, sizeof(example));
}

static void elements_of_an_array_are_of_one_version(void **state)
{
    (void)state;
    next_version longer[3] = {{sizeof *longer, 1, 2, 0}, {sizeof *longer, 3, 4, 0}, {sizeof *longer, 5, 6, 0}};
    const first_version shorter[2] = {{sizeof *shorter, 1}, {sizeof *shorter, 2}};
    assert_int_equal(check_array(longer, 3), ITH_OK);
    assert_int_equal(check_array(shorter, 2), ITH_OK);
    assert_int_equal(check_array(NULL, 0), ITH_OK);
    assert_int_equal(check_array(NULL, 1), ITH_ERR_ARGUMENT);
    longer[2].newest = 7;
    assert_int_equal(check_array(longer, 2), ITH_OK);
    assert_int_equal(check_array(longer, 3), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "a later version's field is set"));
    longer[1].struct_size = SIZE_MAX;
    assert_int_equal(check_array(longer, 3), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "struct_size of element 1 of the example is"));
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, sizeof(size_t), sizeof(example) - 1, sizeof(example) + 1, 8192, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        example given = {sizes[i], 3, 3}, full = EXAMPLE_INIT;
        char sentence[256];
        snprintf(sentence, sizeof sentence,
                 "struct_size of the example is %zu, which it has in no version (here it is 24): set the struct to "
                 "EXAMPLE_INIT",
                 sizes[i]);
        assert_int_equal(ITH_SIZED_READ(context, example, EXAMPLE_INIT, &given, &full), ITH_ERR_ARGUMENT);
        assert_string_equal(ith_context_error(context), sentence);
        assert_true(full.old == 1 && full.newer == 2.5);
        assert_int_equal(ITH_SIZED_FILL(context, example, EXAMPLE_INIT, &given, &full), ITH_ERR_ARGUMENT);
        assert_int_equal(given.old, 3);
    }
    example full = EXAMPLE_INIT;
    assert_int_equal(ITH_SIZED_READ(context, example, EXAMPLE_INIT, NULL, &full), ITH_ERR_ARGUMENT);
    assert_string_equal(ith_context_error(context), "the example is NULL");
}

static void a_creation_says_why_it_failed(void **state)
{
    (void)state;
    ith_context_options options = {0};
    ith_context *none = context;
    assert_int_equal(ith_context_create(&options, &none), ITH_ERR_ARGUMENT);
    assert_null(none);
    assert_non_null(strstr(ith_context_error(NULL), "struct_size of the ith_context_options is 0"));
    assert_non_null(strstr(ith_context_error(NULL), "ITH_CONTEXT_OPTIONS_INIT"));
    options = (ith_context_options)ITH_CONTEXT_OPTIONS_INIT;
    ith_allocator allocator = ITH_ALLOCATOR_INIT;
    options.allocator = &allocator;
    assert_int_equal(ith_context_create(&options, &none), ITH_ERR_ARGUMENT);
    assert_string_equal(ith_context_error(NULL), "the ith_allocator has no function to allocate");
    assert_int_equal(ith_context_create(NULL, NULL), ITH_ERR_ARGUMENT);
    assert_string_equal(ith_context_error(NULL), "out is NULL");
}

static void null_is_refused(void **state)
{
    (void)state;
    ith_context *none = context;
    assert_int_equal(ith_context_clone(NULL, &none), ITH_ERR_ARGUMENT);
    assert_null(none);
    assert_string_equal(ith_context_error(NULL), "parent is NULL");
    assert_int_equal(ith_context_clone(context, NULL), ITH_ERR_ARGUMENT);
    assert_string_equal(ith_context_error(context), "out is NULL");
    assert_int_equal(ith_context_cpu(NULL), 0);
    assert_int_equal(ith_context_memory(NULL, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_context_memory(context, NULL), ITH_ERR_ARGUMENT);
    ith_share(10, 3, 1, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_takes_what_there_is), cmocka_unit_test(fill_gives_what_fits),
        cmocka_unit_test(nonsense_is_refused),      cmocka_unit_test(a_creation_says_why_it_failed),
        cmocka_unit_test(null_is_refused),          cmocka_unit_test(elements_of_an_array_are_of_one_version),
    };
    if (ith_context_create(NULL, &context))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ith_context_destroy(&context);
    return failed;
}
