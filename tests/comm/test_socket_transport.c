/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of transports over the sockets of examples/socket_transport.h, with ranks that are processes and with ranks
 * that are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/suite/suite.h"
#include "socket_meeting.h"
#include "support/rank_group.h"
#include "support/sanitizers.h"
#include "support/socket_group.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCHDOG_SECONDS 300 /* the most seconds of each process */

/* ---- Processes ------------------------------------------------------------------------------------------------- */

typedef struct task {
    int ranks;
    ith_rank_fn fn;
    void *user;
} task;

/* The process fails if the function fails, or if memory is not freed. */
static int be_rank(int rank, const char *folder, void *user)
{
    const task *t = user;
    ith_context *context = NULL;
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    alarm(WATCHDOG_SECONDS);
    omp_set_num_threads(1);
    if (ith_context_create(NULL, &context))
        return 1;
    ith_comm *comm = socket_group_join(context, folder, rank, t->ranks);
    if (!comm)
        return 1;
    ith_status status = t->fn(context, comm, t->user);
    if (status)
        ith_comm_abort(comm, status);
    ith_comm_destroy(&comm);
    if (ith_context_memory(context, &use) || use.current_bytes)
        status = ITH_ERR_INTERNAL;
    ith_context_destroy(&context);
    return status != ITH_OK;
}

static int run_processes(void *self, int ranks, ith_rank_fn fn, void *user)
{
    task t = {ranks, fn, user};
    int statuses[SUITE_RANKS];
    (void)self;
    int failed = socket_run_processes(ranks, be_rank, &t, statuses);
    for (int rank = 0; failed > 0 && rank < ranks; rank++)
        if (WIFSIGNALED(statuses[rank]))
            print_error("the process of rank %d of %d died of signal %d\n", rank, ranks, WTERMSIG(statuses[rank]));
    return failed;
}

static void processes_pass(void **state)
{
    (void)state;
    if (SANITIZES_THREADS) /* it sees no other process */
        skip();
    const suite_subject subject = {
        .name = "processes", .ranks = SUITE_RANKS, .alive = true, .notifies = true, .run = run_processes};
    assert_int_equal(suite_run(&subject, getenv("SUITE")), 0);
}

/* ---- Threads --------------------------------------------------------------------------------------------------- */

typedef struct thread_task {
    task task;
    int failed[GROUP_RANKS];
} thread_task;

static void be_thread(rank_group *g, int rank, void *user)
{
    thread_task *t = user;
    ith_status status = t->task.fn(g->contexts[rank], g->comms[rank], t->task.user);
    t->failed[rank] = status != ITH_OK;
    if (status)
        ith_comm_abort(g->comms[rank], status);
    ith_comm_destroy(&g->comms[rank]);
}

static int run_threads(void *self, int ranks, ith_rank_fn fn, void *user)
{
    thread_task t = {.task = {ranks, fn, user}};
    rank_group g;
    ith_context *root = NULL;
    int failed = 0;
    (void)self;
    assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
    assert_int_equal(group_create(&g, root, ranks), ITH_OK);
    group_run(&g, be_thread, &t);
    group_destroy(&g);
    ith_context_destroy(&root);
    for (int rank = 0; rank < ranks; rank++)
        failed += t.failed[rank];
    return failed;
}

static void threads_pass(void **state)
{
    (void)state;
    const suite_subject subject = {
        .name = "threads", .ranks = SUITE_RANKS, .alive = true, .notifies = true, .run = run_threads};
    group_connect = socket_group_create;
    assert_int_equal(suite_run(&subject, getenv("SUITE")), 0);
}

/* ---- Meeting --------------------------------------------------------------------------------------------------- */

static void who_does_not_meet_is_told(void **state)
{
    (void)state;
    char folder[] = "/tmp/ithaca-meet-XXXXXX", long_folder[256], problem[SOCKET_SENTENCE];
    assert_non_null(mkdtemp(folder));
    assert_null(socket_meet(folder, 0, 2, 0.05, problem));
    assert_non_null(strstr(problem, "has not met"));
    assert_null(socket_meet(folder, 1, 2, 0.05, problem));
    assert_non_null(strstr(problem, "has not met"));
    assert_null(socket_meet("/nowhere", 0, 2, 0.05, problem));
    assert_non_null(strstr(problem, "/nowhere/0: No such file"));
    assert_null(socket_meet(folder, 2, 2, 0.05, problem));
    assert_null(socket_meet(folder, -1, 2, 0.05, problem));
    memset(long_folder, 'x', sizeof long_folder - 1);
    long_folder[sizeof long_folder - 1] = '\0';
    assert_null(socket_meet(long_folder, 0, 2, 0.05, problem));
    assert_non_null(strstr(problem, "too long"));
    assert_int_equal(rmdir(folder), 0); /* nothing is left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_does_not_meet_is_told),
        cmocka_unit_test(processes_pass), /* before any thread is started */
        cmocka_unit_test(threads_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
