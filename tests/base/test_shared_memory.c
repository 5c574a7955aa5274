/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes share: all see the numbers that one writes, the system frees it however they end, and a process
 * that may not map it gets the reason. */
#include "base/clock.h"
#include "base/shared_memory.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define BYTES 10000
#define LIMIT_BYTES ((rlim_t)1 << 30) /* limit of the size of files; shared memory is a file */

/* The contents of the shared memory. */
typedef struct contents {
    _Atomic uint32_t counter;
    char text[64];
} contents;

static ith_context *context;

static int set_up(void **state)
{
    (void)state;
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limit.rlim_max < LIMIT_BYTES ? limit.rlim_max : LIMIT_BYTES;
    signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &limit) || ith_context_create(NULL, &context);
}

static int tear_down(void **state)
{
    (void)state;
    ith_context_destroy(&context);
    return 0;
}

static ith_shared_memory create(void)
{
    ith_shared_memory memory;
    if (ith_shared_memory_create(context, BYTES, "a test", &memory))
        fail_msg("%s", ith_context_error(context));
    return memory;
}

/* Another process maps the memory, answers a text, and does not end before it is killed. */
static void answer(const ith_shared_handle *handle)
{
    ith_context *own = NULL;
    ith_shared_memory memory;
    alarm(120); /* in case the test dies */
    if (ith_context_create(NULL, &own) || ith_shared_memory_open(own, handle, BYTES, &memory))
        _exit(1);
    contents *shared = memory.data;
    if (strcmp(shared->text, "question") || ith_context_bytes(own))
        _exit(2);
    snprintf(shared->text, sizeof shared->text, "answer");
    ith_counter_advance(&shared->counter);
    while (true)
        pause();
}

static void processes_see_what_one_writes(void **state)
{
    (void)state;
    ith_shared_memory memory = create();
    contents *shared = memory.data;
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(((char *)memory.data)[i], 0);
    snprintf(shared->text, sizeof shared->text, "question");
    const ith_shared_handle handle = ith_shared_memory_handle(&memory);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        answer(&handle);
    double begin = ith_clock_seconds();
    while (!atomic_load(&shared->counter) && ith_clock_seconds() - begin < 60 && !waitpid(child, NULL, WNOHANG))
        ith_counter_wait(&shared->counter, 0, 1);
    assert_string_equal(shared->text, "answer");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_string_equal(shared->text, "answer");
    ith_shared_memory_free(context, &memory);
}

/* The memory has no name in a file system, and is freed with its last mapping. */
static void nothing_is_left(void **state)
{
    (void)state;
    ith_shared_memory memory = create(), other;
    assert_true(ith_context_bytes(context) >= ith_shared_memory_bytes(BYTES));
    const ith_shared_handle handle = ith_shared_memory_handle(&memory);
    assert_int_equal(ith_shared_memory_open(context, &handle, BYTES, &other), ITH_OK);
    ith_shared_memory_free(context, &other);
    ith_shared_memory_hide(&memory);
    assert_int_equal(ith_shared_memory_open(context, &handle, BYTES, &other), ITH_ERR_UNSUPPORTED);
    assert_null(other.data);
    ith_shared_memory_free(context, &memory);
    ith_shared_memory_free(context, &memory);
    assert_int_equal(ith_context_bytes(context), 0);
}

/* In another container another process may have the same number. */
static void another_file_is_refused(void **state)
{
    (void)state;
    ith_shared_memory memory = create(), second = create(), other;
    ith_shared_handle handle = ith_shared_memory_handle(&memory);
    handle.file = second.file;
    assert_int_equal(ith_shared_memory_open(context, &handle, BYTES, &other), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "cannot map the memory"));
    handle.pid = 0;
    assert_int_equal(ith_shared_memory_open(context, &handle, BYTES, &other), ITH_ERR_UNSUPPORTED);
    ith_shared_memory_free(context, &memory);
    ith_shared_memory_free(context, &second);
}

/* Too much memory is refused at once, and not taken page by page until the machine has none left. set_up limits this
 * process. */
static void too_much_is_an_error(void **state)
{
    (void)state;
    ith_shared_memory memory;
    assert_int_equal(ith_shared_memory_create(context, (int64_t)1 << 60, "a test", &memory), ITH_ERR_MEMORY);
    assert_non_null(strstr(ith_context_error(context), "out of memory for a test"));
    assert_null(memory.data);
    assert_int_equal(ith_context_bytes(context), 0);
}

static void a_wait_ends(void **state)
{
    (void)state;
    _Atomic uint32_t counter = 7;
    double begin = ith_clock_seconds();
    ith_counter_wait(&counter, 6, 100); /* the counter has another value already */
    ith_counter_wait(&counter, 7, 0.05);
    double took = ith_clock_seconds() - begin;
    assert_true(took >= 0.049 && took < 50);
    ith_counter_advance(&counter);
    assert_int_equal(atomic_load(&counter), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_see_what_one_writes),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(another_file_is_refused),
        cmocka_unit_test(too_much_is_an_error),
        cmocka_unit_test(a_wait_ends),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
