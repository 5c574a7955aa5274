/* SPDX-License-Identifier: Apache-2.0 */
/* Where modules with kernels are looked for, and which are taken. Each case is a process of its own, for a process
 * looks once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/kernel.h"
#include "kernels/plugin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, PLUGINS_MOST = 9, COUNTERFEIT = 10 };

/* How many kernels the plugins gave; COUNTERFEIT more if that one is there and the table has it last. */
static int count_plugins(void)
{
    int kernels = 0, plugins = 0;
    while (ith_attn_kernel_at(kernels) != NULL)
        kernels++;
    while (ith_kernel_plugin_at(plugins) != NULL)
        plugins++;
    if (plugins > 0 && ith_attn_kernel_at(kernels - 1) != ith_kernel_plugin_at(plugins - 1))
        return -1;
    const ith_attn_kernel *counterfeit = ith_attn_kernel_named("counterfeit");
    return plugins + (counterfeit != NULL && counterfeit == ith_attn_kernel_at(kernels - 1) ? COUNTERFEIT : 0);
}

static void *count_in_thread(void *count)
{
    *(int *)count = count_plugins();
    return NULL;
}

/* What all of several threads count that look at once; -1 if they differ. */
static int count_in_threads(void)
{
    pthread_t threads[THREADS];
    int counts[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, count_in_thread, &counts[i]) != 0)
            return -1;
    for (int i = 0; i < THREADS; i++)
        if (pthread_join(threads[i], NULL) != 0)
            return -1;
    for (int i = 1; i < THREADS; i++)
        if (counts[i] != counts[0])
            return -1;
    return counts[0];
}

/* count_plugins of a process whose ITHACA_PLUGIN_PATH is `folder`, NULL for none. */
static int plugins_with(const char *folder)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int set = folder != NULL ? setenv("ITHACA_PLUGIN_PATH", folder, 1) : unsetenv("ITHACA_PLUGIN_PATH");
        _exit(set == 0 ? count_in_threads() : -1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_module_is_found_where_the_environment_says(void **state)
{
    (void)state;
    assert_int_equal(plugins_with(MODULES "/same"), COUNTERFEIT + 1);
}

static void a_module_of_another_abi_is_passed_over(void **state)
{
    (void)state;
    assert_int_equal(plugins_with(MODULES "/other"), 0);
}

static void no_module_is_no_error(void **state)
{
    (void)state;
    char *longest = malloc(8192);
    assert_non_null(longest);
    memset(longest, '/', 8191);
    longest[8191] = '\0';
    assert_int_equal(plugins_with(""), 0);
    assert_int_equal(plugins_with("/nowhere"), 0);
    assert_int_equal(plugins_with("/dev/null"), 0);
    assert_int_equal(plugins_with(longest), 0);
    free(longest);
}

static void the_build_folder_is_looked_into(void **state)
{
    (void)state;
    assert_int_equal(plugins_with(NULL), 0);
}

static void there_is_nothing_before_the_first(void **state)
{
    (void)state;
    assert_null(ith_kernel_plugin_at(-1));
    assert_null(ith_kernel_plugin_at(PLUGINS_MOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_is_found_where_the_environment_says),
        cmocka_unit_test(a_module_of_another_abi_is_passed_over),
        cmocka_unit_test(no_module_is_no_error),
        cmocka_unit_test(the_build_folder_is_looked_into),
        cmocka_unit_test(there_is_nothing_before_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
