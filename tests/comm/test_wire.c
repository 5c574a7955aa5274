/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over a link (comm/wire), with 1, 2 and 3 ranks in a process: the suite of transports over sockets
 * between processes and between threads, over links that are late, full and slow at random; wrong datagrams; processes
 * that die, stop or have no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/suite/suite.h"
#include "comm/wire/wire.h"
#include "support/socket_link.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCHDOG_SECONDS 100 /* of each process */

/* ---- One process ----------------------------------------------------------------------------------------------- */

/* What all ranks of a run do, and over which links. */
typedef struct task {
    int ranks, each;      /* number of all ranks, and of the ranks in each process */
    const roughness *how; /* NULL: the links are good */
    ith_rank_fn fn;
    void *user;
} task;

typedef struct rank_thread {
    pthread_t thread;
    const task *task;
    ith_context *context;
    ith_comm *comm;
    bool failed;
} rank_thread;

static void *rank_main(void *argument)
{
    rank_thread *self = argument;
    omp_set_num_threads(1);
    ith_status status = self->task->fn(self->context, self->comm, self->task->user);
    self->failed = status != ITH_OK;
    if (status)
        ith_comm_abort(self->comm, status);
    ith_comm_destroy(&self->comm);
    return NULL;
}

/* The link of a process, as rough as the task has it. */
static ith_link *make_link(const task *t, const link_scene *scene, int process)
{
    ith_link *link = socket_link_new(scene, process);
    roughness how = t->how ? *t->how : (roughness){0};
    how.seed += (unsigned)process;
    return link && t->how ? rough_link_new(link, &how) : link;
}

/* Makes the communicators of a process's ranks. Returns their number, or -1 after a complaint. */
static int join(const task *t, const link_scene *scene, int process, rank_thread *all)
{
    ith_link *link = make_link(t, scene, process);
    void *states[SUITE_RANKS];
    int numbers[SUITE_RANKS], size = 0, ranks = scene->all[process].ranks;
    char sentence[256] = "";
    if (!link || ith_wire_open(link, states, numbers, &size, sentence, sizeof sentence)) {
        fprintf(stderr, "process %d: %s\n", process, sentence);
        return -1;
    }
    for (int i = 0; i < ranks; i++) {
        all[i] = (rank_thread){.task = t};
        if (ith_context_create(NULL, &all[i].context) ||
            ith_comm_create(all[i].context, &ith_wire_transport, states[i], numbers[i], size, &all[i].comm)) {
            fprintf(stderr, "rank %d: %s\n", numbers[i], ith_context_error(all[i].context));
            return -1;
        }
    }
    return ranks;
}

/* Waits for the ranks of a process. Returns how many failed, or kept memory of their contexts. */
static int part(rank_thread *all, int ranks)
{
    int failed = 0;
    for (int i = 0; i < ranks; i++) {
        ith_memory_use use = ITH_MEMORY_USE_INIT;
        pthread_join(all[i].thread, NULL);
        failed += all[i].failed || ith_context_memory(all[i].context, &use) || use.current_bytes;
        ith_context_destroy(&all[i].context);
    }
    return failed;
}

/* ---- Processes that are threads -------------------------------------------------------------------------------- */

/* All ranks of all processes are threads of this process. */
static int run_threads(void *self, int ranks, ith_rank_fn fn, void *user)
{
    task t = *(const task *)self;
    rank_thread all[LINK_PROCESSES][SUITE_RANKS];
    link_scene scene;
    int joined[LINK_PROCESSES], failed = 0;
    t.ranks = ranks, t.fn = fn, t.user = user;
    assert_true(link_scene_make(&scene, ranks, t.each));
    for (int p = 0; p < scene.processes; p++) {
        joined[p] = join(&t, &scene, p, all[p]);
        assert_true(joined[p] > 0);
    }
    for (int p = 0; p < scene.processes; p++)
        for (int i = 0; i < joined[p]; i++)
            assert_int_equal(pthread_create(&all[p][i].thread, NULL, rank_main, &all[p][i]), 0);
    for (int p = 0; p < scene.processes; p++)
        failed += part(all[p], joined[p]);
    return failed;
}

/* ---- Processes ------------------------------------------------------------------------------------------------- */

/* One process of a run. Returns its exit status. */
static int be_process(const task *t, const link_scene *scene, int process)
{
    rank_thread all[SUITE_RANKS];
    alarm(WATCHDOG_SECONDS);
    link_scene_keep(scene, process);
    int ranks = join(t, scene, process, all);
    for (int i = 0; i < ranks; i++)
        if (pthread_create(&all[i].thread, NULL, rank_main, &all[i]))
            return 1;
    return ranks < 0 || part(all, ranks) > 0;
}

/* Starts the processes of a run. */
static void start(const task *t, pid_t *pids, int *processes)
{
    link_scene scene;
    assert_true(link_scene_make(&scene, t->ranks, t->each));
    for (int p = 0; p < scene.processes; p++) {
        pids[p] = fork();
        assert_true(pids[p] >= 0);
        if (pids[p] == 0)
            _exit(be_process(t, &scene, p));
    }
    link_scene_keep(&scene, -1);
    *processes = scene.processes;
}

/* Waits for the processes of a run. Returns how many failed. The process number `dead` is not counted. */
static int finish(const pid_t *pids, int processes, int dead)
{
    int failed = 0;
    for (int p = 0; p < processes; p++) {
        int status = 0;
        waitpid(pids[p], &status, 0);
        if (WIFSIGNALED(status) && p != dead)
            print_error("process %d of %d died of signal %d\n", p, processes, WTERMSIG(status));
        failed += p != dead && status != 0;
    }
    return failed;
}

static int run_processes(void *self, int ranks, ith_rank_fn fn, void *user)
{
    task t = *(const task *)self;
    pid_t pids[LINK_PROCESSES];
    int processes;
    t.ranks = ranks, t.fn = fn, t.user = user;
    start(&t, pids, &processes);
    return finish(pids, processes, -1);
}

/* ---- The suite ------------------------------------------------------------------------------------------------- */

static void pass(const char *name, int (*run)(void *, int, ith_rank_fn, void *), int each, const roughness *how)
{
    task t = {.each = each, .how = how};
    const suite_subject subject = {
        .name = name, .ranks = SUITE_RANKS, .alive = true, .notifies = true, .run = run, .self = &t};
    assert_int_equal(suite_run(&subject, getenv("SUITE")), 0);
}

static void processes_pass(void **state)
{
    (void)state;
    pass("processes of 1 rank", run_processes, 1, NULL);
    pass("processes of 2 ranks", run_processes, 2, NULL);
    pass("processes of 3 ranks", run_processes, 3, NULL);
}

static void threads_pass(void **state)
{
    (void)state;
    pass("threads", run_threads, 1, NULL);
    pass("two threads in a process", run_threads, 2, NULL);
    pass("threads of one process", run_threads, SUITE_RANKS, NULL);
}

static void rough_links_pass(void **state)
{
    static const roughness full = {.seed = 1, .full = 60}, late = {.seed = 2, .late_seconds = 3e-4},
                           slow = {.seed = 3, .full = 10, .late_seconds = 1e-4, .unsettled = true};
    (void)state;
    pass("full links", run_threads, 1, &full);
    pass("late datagrams", run_threads, 1, &late);
    pass("full and late links", run_threads, 2, &slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_pass), /* before any thread is started */
        cmocka_unit_test(threads_pass),
        cmocka_unit_test(rough_links_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
