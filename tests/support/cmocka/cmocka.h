/* SPDX-License-Identifier: Apache-2.0 */
/* The part of cmocka that these tests use, for cross builds to machines for which cmocka is not installed. Where cmocka
 * is installed, it is used instead (tests/CMakeLists.txt). */
#ifndef ITH_TESTS_CMOCKA_H
#define ITH_TESTS_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    int (*set_up)(void **state), (*tear_down)(void **state);
};

#define cmocka_unit_test_setup_teardown(function, setup, teardown)                                                     \
    {                                                                                                                  \
#function, function, setup, teardown                                                                           \
    }
#define cmocka_unit_test(function) cmocka_unit_test_setup_teardown(function, NULL, NULL)

enum { CMOCKA_PASSED, CMOCKA_FAILED, CMOCKA_SKIPPED };

/* A program has one copy of each, which the helpers of tests/support share with the test. */
__attribute__((weak)) jmp_buf cmocka_test_end;
__attribute__((weak)) volatile int cmocka_outcome; /* of the test that runs */

static inline __attribute__((format(printf, 1, 2))) void print_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

static inline _Noreturn __attribute__((format(printf, 3, 4))) void cmocka_fail(const char *file, int line,
                                                                               const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    cmocka_outcome = CMOCKA_FAILED;
    longjmp(cmocka_test_end, 1);
}

static inline _Noreturn void skip(void)
{
    cmocka_outcome = CMOCKA_SKIPPED;
    longjmp(cmocka_test_end, 1);
}

#define fail_msg(...) cmocka_fail(__FILE__, __LINE__, __VA_ARGS__)

static inline void cmocka_check(int holds, const char *claim, const char *file, int line)
{
    if (!holds)
        cmocka_fail(file, line, "not so: %s", claim);
}

#define assert_true(c) cmocka_check((c) ? 1 : 0, #c, __FILE__, __LINE__)
#define assert_false(c) cmocka_check((c) ? 0 : 1, "not " #c, __FILE__, __LINE__)
#define assert_null(p) cmocka_check((p) == NULL, #p " is NULL", __FILE__, __LINE__)
#define assert_non_null(p) cmocka_check((p) != NULL, #p " is not NULL", __FILE__, __LINE__)
#define assert_ptr_equal(a, b) cmocka_check((const void *)(a) == (const void *)(b), #a " is " #b, __FILE__, __LINE__)

static inline void cmocka_equal(long long a, long long b, const char *claim, const char *file, int line)
{
    if (a != b)
        cmocka_fail(file, line, "%s: %lld is not %lld", claim, a, b);
}

#define assert_int_equal(a, b) cmocka_equal((long long)(a), (long long)(b), #a " = " #b, __FILE__, __LINE__)

static inline void cmocka_texts(int equal, const char *a, const char *b, const char *file, int line)
{
    if ((strcmp(a, b) == 0) != equal)
        cmocka_fail(file, line, "\"%s\" is %s \"%s\"", a, equal ? "not" : "also", b);
}

#define assert_string_equal(a, b) cmocka_texts(1, a, b, __FILE__, __LINE__)
#define assert_string_not_equal(a, b) cmocka_texts(0, a, b, __FILE__, __LINE__)

static inline void cmocka_memory(const void *a, const void *b, size_t bytes, const char *file, int line)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < bytes; i++)
        if (x[i] != y[i])
            cmocka_fail(file, line, "byte %zu of %zu is 0x%02x, not 0x%02x", i, bytes, x[i], y[i]);
}

#define assert_memory_equal(a, b, bytes) cmocka_memory(a, b, bytes, __FILE__, __LINE__)

static inline int cmocka_run_test(const struct CMUnitTest *test, void *state)
{
    static const char *const outcomes[] = {"ok", "FAILED", "skipped"};
    cmocka_outcome = CMOCKA_PASSED;
    if (test->set_up && test->set_up(&state))
        cmocka_outcome = CMOCKA_FAILED;
    else if (setjmp(cmocka_test_end) == 0)
        test->run(&state);
    if (test->tear_down && test->tear_down(&state))
        cmocka_outcome = CMOCKA_FAILED;
    fprintf(stderr, "[%s] %s\n", outcomes[cmocka_outcome], test->name);
    return cmocka_outcome;
}

/* Runs the tests. Returns how many failed; -1 if the group could not be set up. */
static inline int cmocka_run_tests(const char *group, const struct CMUnitTest *tests, size_t count,
                                   int (*set_up)(void **state), int (*tear_down)(void **state))
{
    int failed = 0;
    void *state = NULL;
    if (set_up && set_up(&state))
        return -1;
    for (size_t i = 0; i < count; i++)
        failed += cmocka_run_test(tests + i, state) == CMOCKA_FAILED;
    if (tear_down && tear_down(&state))
        failed++;
    fprintf(stderr, "%s: %d of %zu tests failed\n", group, failed, count);
    return failed;
}

#define cmocka_run_group_tests_name(group, tests, setup, teardown)                                                     \
    cmocka_run_tests(group, tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_group_tests_name(#tests, tests, setup, teardown)

#endif
