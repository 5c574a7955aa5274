/* SPDX-License-Identifier: Apache-2.0 */
/* Guards around reads of mapped files that are cut. The handler of SIGBUS stays in a process, so each test runs in a
 * child process of its own. */
#include "base/file_fault.h"
#include "support/fixture.h"
#include "support/temporary.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 16
#define THREADS 4
#define ROUNDS 200

static char *folder;
static long page;

/* Runs `body` in a child process, which exits with the result of `body`. Returns the child's wait status. */
static int in_child(int (*body)(void))
{
    pid_t child = fork();
    temporary_require(child >= 0, "fork");
    if (!child) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a child that dies leaves no core file */
        _exit(body());
    }
    int status = 0;
    temporary_require(waitpid(child, &status, 0) == child, "waitpid");
    return status;
}

static void assert_succeeds(int (*body)(void))
{
    int status = in_child(body);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A mapped file of PAGES pages. Each byte holds the number of its page. */
typedef struct scene {
    int file;
    const volatile unsigned char *data;
    long next;      /* the page that is read next */
    long last_read; /* the last page that was read; -1: none */
} scene;

static scene make_scene(void)
{
    const char *path = temporary_path(folder, "file");
    unsigned char content[64 * 1024];
    scene s = {.last_read = -1};
    FILE *out = fopen(path, "wb");
    temporary_require(out != NULL && page <= (long)sizeof content, path);
    for (int i = 0; i < PAGES; i++) {
        memset(content, i, (size_t)page);
        temporary_require(fwrite(content, (size_t)page, 1, out) == 1, path);
    }
    temporary_require(fclose(out) == 0, path);
    s.file = open(path, O_RDWR);
    temporary_require(s.file >= 0, path);
    s.data = mmap(NULL, (size_t)(PAGES * page), PROT_READ, MAP_PRIVATE, s.file, 0);
    temporary_require(s.data != MAP_FAILED, "mmap");
    return s;
}

static void cut(const scene *s, long pages)
{
    temporary_require(ftruncate(s->file, pages * page) == 0, "ftruncate");
}

static void read_pages(void *user)
{
    scene *s = user;
    for (s->next = 0; s->next < PAGES; s->next++)
        if (s->data[s->next * page + page / 2] == s->next)
            s->last_read = s->next;
}

static int read_a_cut_file(void)
{
    scene s = make_scene();
    if (!ith_file_fault_guard(read_pages, &s) || s.last_read != PAGES - 1)
        return 1;
    cut(&s, 5);
    s.last_read = -1;
    if (ith_file_fault_guard(read_pages, &s) || s.last_read != 4)
        return 2;
    cut(&s, PAGES); /* grown again, with zeros */
    return ith_file_fault_guard(read_pages, &s) && s.last_read == 4 ? 0 : 3;
}

static void a_cut_file_is_a_failure(void **state)
{
    (void)state;
    assert_succeeds(read_a_cut_file);
}

/* Reads the file behind an inner guard, then without one: the second failure must come to the outer guard. */
static void read_twice(void *user)
{
    scene *s = user;
    s->last_read = ith_file_fault_guard(read_pages, s) ? -2 : 100;
    read_pages(s);
    s->last_read = -3; /* not reached */
}

static int nest_guards(void)
{
    scene s = make_scene();
    cut(&s, 0);
    return !ith_file_fault_guard(read_twice, &s) && s.last_read == 100 ? 0 : 1;
}

static void guards_are_nested(void **state)
{
    (void)state;
    assert_succeeds(nest_guards);
}

/* Some threads read a cut file all the time, the others a whole one. */
static void *read_often(void *user)
{
    scene *own = user, whole = *own;
    long failures = 0, wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        bool read = ith_file_fault_guard(read_pages, &whole);
        failures += !read;
        wrong += read && whole.last_read != PAGES - 1;
    }
    own->next = wrong ? -1 : failures;
    return NULL;
}

static int read_in_threads(void)
{
    scene s[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        s[i] = make_scene(); /* a new file each: the earlier one is truncated, and its name used again */
        s[i].next = 0;
        unlink(temporary_path(folder, "file"));
        if (i % 2)
            cut(&s[i], i);
    }
    for (int i = 0; i < THREADS; i++)
        temporary_require(pthread_create(&threads[i], NULL, read_often, &s[i]) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        if (s[i].next != (i % 2 ? ROUNDS : 0))
            return 1 + i;
    return 0;
}

static void threads_fail_one_by_one(void **state)
{
    (void)state;
    assert_succeeds(read_in_threads);
}

/* ---- Signals that belong to others ----------------------------------------------------------------------------- */

static void nothing(void *user)
{
    (void)user;
}

static int read_without_guard(void)
{
    scene s = make_scene();
    signal(SIGBUS, SIG_DFL); /* otherwise a sanitizer's handler would hide the signal from the parent */
    if (!ith_file_fault_guard(nothing, NULL))
        return 1;
    cut(&s, 0);
    read_pages(&s);
    return 2;
}

static int read_with_signal_ignored(void)
{
    signal(SIGBUS, SIG_IGN);
    ith_file_fault_guard(nothing, NULL);
    raise(SIGBUS); /* the signal is ignored as before */
    scene s = make_scene();
    cut(&s, 0);
    read_pages(&s);
    return 2;
}

static void raise_signal(void *user)
{
    (void)user;
    raise(SIGBUS);
}

static int raise_in_guard(void)
{
    signal(SIGBUS, SIG_DFL);
    ith_file_fault_guard(raise_signal, NULL);
    return 1;
}

static void other_signals_end_the_process(void **state)
{
    (void)state;
    int (*const bodies[])(void) = {read_without_guard, read_with_signal_ignored, raise_in_guard};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        int status = in_child(bodies[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGBUS);
    }
}

static void leave_with_7(int number)
{
    _exit(number == SIGBUS ? 7 : 8);
}

static volatile uintptr_t expected_begin;

static void leave_with_9(int number, siginfo_t *info, void *machine_state)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    bool same = address >= expected_begin && address < expected_begin + (uintptr_t)(PAGES * page);
    _exit(number == SIGBUS && same && machine_state ? 9 : 10);
}

/* Reads a cut file inside a guard, where the library's handler acts, and then outside, where the earlier one does. */
static int read_inside_and_outside(void)
{
    scene s = make_scene();
    expected_begin = (uintptr_t)s.data;
    cut(&s, 0);
    if (ith_file_fault_guard(read_pages, &s))
        return 1;
    read_pages(&s);
    return 2;
}

static int with_plain_handler(void)
{
    signal(SIGBUS, leave_with_7);
    return read_inside_and_outside();
}

static int with_informed_handler(void)
{
    struct sigaction action = {.sa_sigaction = leave_with_9, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    return read_inside_and_outside();
}

static void the_earlier_handler_is_called(void **state)
{
    (void)state;
    int plain = in_child(with_plain_handler), informed = in_child(with_informed_handler);
    assert_true(WIFEXITED(plain) && WIFEXITED(informed));
    assert_int_equal(WEXITSTATUS(plain), 7);
    assert_int_equal(WEXITSTATUS(informed), 9);
}

/* A handler that is installed after the library's, and calls it. */
static struct sigaction before_late;

static void hand_back(int number, siginfo_t *info, void *machine_state)
{
    before_late.sa_sigaction(number, info, machine_state);
}

static int with_late_handler(void)
{
    scene s = make_scene();
    signal(SIGBUS, leave_with_7);
    cut(&s, 0);
    if (ith_file_fault_guard(read_pages, &s))
        return 1;
    struct sigaction late = {.sa_sigaction = hand_back, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &late, &before_late);
    if (ith_file_fault_guard(read_pages, &s)) /* through the late handler */
        return 2;
    ith_file_fault_renew();
    if (ith_file_fault_guard(read_pages, &s))
        return 3;
    read_pages(&s); /* the late handler gets the signal, then the library's, then the first one */
    return 4;
}

/* A handler that replaces the library's handler and does not call it. */
static int with_handler_in_place(void)
{
    scene s = make_scene();
    ith_file_fault_guard(nothing, NULL);
    signal(SIGBUS, leave_with_7);
    ith_file_fault_renew();
    cut(&s, 0);
    if (ith_file_fault_guard(read_pages, &s))
        return 1;
    read_pages(&s);
    return 2;
}

static void later_handlers_are_lived_with(void **state)
{
    (void)state;
    int (*const bodies[])(void) = {with_late_handler, with_handler_in_place};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        int status = in_child(bodies[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_file_is_a_failure),       cmocka_unit_test(guards_are_nested),
        cmocka_unit_test(threads_fail_one_by_one),       cmocka_unit_test(other_signals_end_the_process),
        cmocka_unit_test(the_earlier_handler_is_called), cmocka_unit_test(later_handlers_are_lived_with),
    };
    page = sysconf(_SC_PAGESIZE);
    folder = temporary_folder();
    int failed = cmocka_run_group_tests_name("file_fault", tests, NULL, NULL);
    temporary_remove(folder);
    return failed;
}
