/* SPDX-License-Identifier: Apache-2.0 */
/* The search for modules with kernels: the folders, the modules that are taken, and the reasons for which the other
 * modules are refused. Each case runs in a process of its own, because a process searches only once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/kernel_module.h"
#include "support/temporary.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8 };

static char *folder;
static char report[16384]; /* of the last search: lines "FILE: REFUSAL" and "kernel NAME" */

static int set_up(void **state)
{
    (void)state;
    folder = temporary_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(folder);
    return 0;
}

/* Adds a link `name` in the folder to one of the built modules. */
static void add_link(const char *module, const char *name)
{
    char target[512];
    snprintf(target, sizeof target, "%s/%s/ithaca_kernel_%s.so", MODULES, module, module);
    assert_int_equal(symlink(target, temporary_path(folder, name)), 0);
}

static void *count_modules(void *count)
{
    while (ith_module_at(&ith_kernel_modules, *(int *)count))
        ++*(int *)count;
    return NULL;
}

/* Whether threads that search at the same time all find the same number of modules. */
static bool threads_agree(void)
{
    pthread_t threads[THREADS];
    int counts[THREADS] = {0}, here = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, count_modules, &counts[i]))
            return false;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    count_modules(&here);
    for (int i = 0; i < THREADS; i++)
        if (counts[i] != here)
            return false;
    return true;
}

static void print_report(FILE *out)
{
    const ith_attn_kernel *kernel;
    const ith_module *module;
    for (int i = 0; (module = ith_module_at(&ith_kernel_modules, i)) != NULL; i++)
        fprintf(out, "%s: %s\n", strrchr(module->path, '/') + 1, module->refusal);
    for (int i = 0; (kernel = ith_attn_kernel_at(i)) != NULL; i++)
        if (ith_attn_kernel_named(kernel->name) == kernel)
            fprintf(out, "kernel %s\n", kernel->name);
}

/* Fills `report` in a process whose ITHACA_PLUGIN_PATH is `path`, NULL for none. */
static void look(const char *path)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* ends the test if a module makes it wait */
        int failed = path ? setenv("ITHACA_PLUGIN_PATH", path, 1) : unsetenv("ITHACA_PLUGIN_PATH");
        FILE *out = fdopen(ends[1], "w");
        failed = failed || !out || !threads_agree();
        if (!failed)
            print_report(out);
        _exit(failed || fclose(out));
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    assert_non_null(in);
    report[fread(report, 1, sizeof report - 1, in)] = '\0';
    fclose(in);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect(const char *text)
{
    if (!strstr(report, text))
        fail_msg("'%s' is not in:\n%s", text, report);
}

static void expect_none(const char *text)
{
    if (strstr(report, text))
        fail_msg("'%s' is in:\n%s", text, report);
}

static void modules_are_taken_in_the_order_of_their_names(void **state)
{
    (void)state;
    add_link("plain", "ithaca_kernel_plain.so");
    add_link("idle", "ithaca_kernel_idle.so");
    look(folder);
    expect("ithaca_kernel_idle.so: \nithaca_kernel_plain.so: \nkernel ");
    expect("kernel f32_ref\nkernel idle\nkernel f32_module\n");
}

static void the_reason_of_a_refusal_is_kept(void **state)
{
    (void)state;
    char numbers[128];
    add_link("future", "ithaca_kernel_future.so");
    add_link("bare", "ithaca_kernel_bare.so");
    add_link("idle", "ithaca_kernel_alias.so");
    add_link("idle", "ithaca_kernel_idle.so.so");
    add_link("absent", "ithaca_kernel_gone.so");
    add_link("idle", "ithaca_kernel_idle.so");
    temporary_write(temporary_path(folder, "ithaca_kernel_text.so"), "no shared object", 16);
    temporary_write(temporary_path(folder, "ithaca_kernel_empty.so"), "", 0);
    assert_int_equal(mkdir(temporary_path(folder, "ithaca_kernel_folder.so"), 0700), 0);
    assert_int_equal(mkfifo(temporary_path(folder, "ithaca_kernel_pipe.so"), 0600), 0);
    assert_int_equal(symlink("/dev/null", temporary_path(folder, "ithaca_kernel_null.so")), 0);
    look(folder);
    snprintf(numbers, sizeof numbers, "ithaca_kernel_future.so: it was built for ABI %d; this library takes ABI %d\n",
             ITH_KERNEL_MODULE_ABI + 1, ITH_KERNEL_MODULE_ABI);
    expect(numbers);
    expect("ithaca_kernel_bare.so: it exports no ith_kernel_module_table\n");
    expect("ithaca_kernel_alias.so: its file says alias, its table idle\n");
    expect("ithaca_kernel_idle.so.so: its file says idle.so, its table idle\n");
    expect("ithaca_kernel_gone.so: No such file or directory\n");
    expect("ithaca_kernel_text.so: ");
    expect("ithaca_kernel_empty.so: file too short\n");
    expect("ithaca_kernel_folder.so: it is a folder, not a file\n");
    expect("ithaca_kernel_pipe.so: it is a pipe, not a file\n");
    expect("ithaca_kernel_null.so: it is a device, not a file\n");
    expect_none(folder);                 /* the caller adds the path to a refusal */
    expect("ithaca_kernel_idle.so: \n"); /* other refused modules do not matter */
    expect("kernel idle\n");
}

static void other_files_are_not_looked_at(void **state)
{
    (void)state;
    static const char *const names[] = {
        "ithaca_kernel_.so",      "ithaca_kernel.so",         "ithaca_kernelidle.so",
        "ithaca_kernel_idle.so~", "libithaca_kernel_idle.so", "ithaca_transport_idle.so",
        "ithaca_kernels_idle.so", "ithaca_kernel_idle",       "x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_link("idle", names[i]);
    look(folder);
    expect_none(": ");
    expect_none("kernel idle");
}

static void no_module_is_no_error(void **state)
{
    (void)state;
    char longest[8192] = {0};
    memset(longest, '/', sizeof longest - 1);
    const char *const places[] = {folder, "", "/nowhere", "/dev/null", longest, NULL};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        look(places[i]);
        expect_none(": ");
        expect("kernel f32_ref\n");
    }
}

static void nothing_comes_before_the_first(void **state)
{
    (void)state;
    assert_null(ith_module_at(&ith_kernel_modules, -1));
    assert_null(ith_module_at(&ith_kernel_modules, 1 << 30));
    assert_null(ith_attn_kernel_at(-1));
    assert_null(ith_attn_kernel_at(1 << 30));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(modules_are_taken_in_the_order_of_their_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_reason_of_a_refusal_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_files_are_not_looked_at, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_module_is_no_error, set_up, tear_down),
        cmocka_unit_test(nothing_comes_before_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
