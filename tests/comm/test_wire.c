/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over a link (comm/wire), with 1, 2 and 3 ranks in a process: the suite of transports between processes
 * and between threads, over links that are late, full and slow at random; exchanges that do not match; processes that
 * die or stop; places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/suite/suite.h"
#include "support/sanitizers.h"
#include "support/wire_group.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The suite ------------------------------------------------------------------------------------------------- */

static int run_threads(void *self, int ranks, ith_rank_fn fn, void *user)
{
    wire_task t = *(const wire_task *)self;
    t.ranks = ranks, t.fn = fn, t.user = user;
    return wire_run_threads(&t);
}

static int run_processes(void *self, int ranks, ith_rank_fn fn, void *user)
{
    wire_task t = *(const wire_task *)self;
    pid_t pids[LINK_PROCESSES];
    t.ranks = ranks, t.fn = fn, t.user = user;
    return wire_finish(pids, wire_start(&t, pids), -1);
}

typedef struct variant {
    const char *name;
    int (*run)(void *self, int ranks, ith_rank_fn fn, void *user);
    wire_task task;
} variant;

/* Runs the suite in some variants, each in a process of its own. They run at the same time, because the suite mostly
 * sleeps. The last entry of the list has the name NULL. */
static void pass(const variant *variants)
{
    pid_t pids[8];
    int count = 0, status = 0;
    for (; variants[count].name; count++) {
        const variant *v = &variants[count];
        const suite_subject subject = {.name = v->name,
                                       .ranks = SUITE_RANKS,
                                       .alive = true,
                                       .notifies = true,
                                       .run = v->run,
                                       .self = (void *)&v->task};
        pids[count] = fork();
        assert_true(pids[count] >= 0);
        if (pids[count] == 0)
            exit(suite_run(&subject, getenv("SUITE")) != 0);
    }
    for (int i = 0; i < count; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (status)
            print_error("%s: status %d\n", variants[i].name, status);
        assert_int_equal(status, 0);
    }
}

/* All variants run the same code. A sanitizer, which makes it much slower, sees the last of each list alone.
 * ThreadSanitizer sees one process alone, so the ranks in other processes are left out for it. */
static void processes_pass(void **state)
{
    const variant variants[] = {{"processes of 1 rank", run_processes, {.each = 1}},
                                {"processes of 3 ranks", run_processes, {.each = 3}},
                                {"processes of 2 ranks", run_processes, {.each = 2}},
                                {0}};
    (void)state;
    if (SANITIZES_THREADS)
        skip();
    pass(variants + (SANITIZED ? 2 : 0));
}

static void threads_pass(void **state)
{
    const variant variants[] = {{"threads of one process", run_threads, {.each = SUITE_RANKS}},
                                {"threads", run_threads, {.each = 1}},
                                {"two threads in a process", run_threads, {.each = 2}},
                                {0}};
    (void)state;
    pass(variants + (SANITIZED ? 2 : 0));
}

static void rough_links_pass(void **state)
{
    static const roughness full = {.seed = 1, .full = 60}, late = {.seed = 2, .late_seconds = 3e-4},
                           slow = {.seed = 3, .full = 10, .late_seconds = 1e-4, .unsettled = true};
    const variant variants[] = {{"full links", run_threads, {.each = 1, .how = &full}},
                                {"late datagrams", run_threads, {.each = 1, .how = &late}},
                                {"full and late links", run_threads, {.each = 2, .how = &slow}},
                                {0}};
    (void)state;
    pass(variants + (SANITIZED ? 2 : 0));
}

/* ---- Exchanges that do not match ------------------------------------------------------------------------------- */

/* The bytes that rank 0 sends in an exchange of two ranks, and the bytes that rank 1 expects; -1: no transfer. */
typedef struct mismatch {
    int64_t sent, expected;
} mismatch;

static ith_status mismatch_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    const mismatch *m = user;
    bool sends = ith_comm_rank(comm) == 0;
    int64_t bytes = sends ? m->sent : m->expected;
    char *memory = calloc(1, 300000);
    ith_transfer transfer = suite_whole(sends ? 1 : 0, memory, bytes);
    SUITE_CHECK(context, memory);
    ith_comm_set_timeout(comm, 20);
    double begin = suite_seconds();
    ith_status status = ith_comm_exchange(comm, &transfer, sends && bytes >= 0, &transfer, !sends && bytes >= 0);
    for (int i = 0; i < 2 && !status; i++) /* a rank that expects nothing, or has sent, gets the error here */
        status = ith_comm_barrier(comm);
    free(memory);
    SUITE_CHECK(context, status == ITH_ERR_ARGUMENT && suite_seconds() - begin < 10);
    return ITH_OK;
}

/* Sizes lie below and above the limit up to which an offer carries the data. */
static void mismatches_end_the_group(void **state)
{
    static const mismatch all[] = {{100, 101},   {100, 200000}, {200000, 100}, {200000, 250000},
                                   {0, 200000},  {4096, 4097},  {4097, 4096},  {-1, 200000},
                                   {200000, -1}, {-1, 0},       {100, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int each = 1; each <= 2; each++) {
            wire_task t = {.ranks = 2, .each = each, .fn = mismatch_in_rank, .user = (void *)&all[i]};
            if (wire_run_threads(&t))
                fail_msg("sent %d, expected %d, %d ranks in a process", (int)all[i].sent, (int)all[i].expected, each);
        }
}

/* ---- More than 2^31 bytes -------------------------------------------------------------------------------------- */

/* The region is the same MiB again and again, because no memory could hold so many bytes. */
static ith_status huge_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    const int64_t run = 1 << 20, runs = (1 << 11) + 1;
    char *memory = malloc((size_t)run);
    bool sends = ith_comm_rank(comm) == 0;
    ith_transfer t = {sends ? 1 : 0, {.data = memory, .count = {runs, 1}, .bytes = run}};
    (void)user;
    SUITE_CHECK(context, memory);
    memset(memory, sends ? 'x' : '-', (size_t)run);
    SUITE_TRY(context, ith_comm_exchange(comm, &t, sends, &t, !sends));
    SUITE_CHECK(context, memory[0] == 'x' && memory[run - 1] == 'x');
    free(memory);
    return ITH_OK;
}

static void more_than_2_31_bytes_arrive(void **state)
{
    (void)state;
    for (int each = 1; each <= 2; each++) {
        wire_task t = {.ranks = 2, .each = each, .fn = huge_in_rank};
        assert_int_equal(wire_run_threads(&t), 0);
    }
}

/* ---- Senders that run ahead ------------------------------------------------------------------------------------ */

/* Rank 0 posts far more small exchanges than the transport can keep for ranks that come late. */
static ith_status run_ahead_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    enum { COUNT = 500, DEPTH = 8 };
    int rank = ith_comm_rank(comm), ranks = ith_comm_size(comm), values[COUNT] = {0};
    ith_transfer transfers[COUNT][SUITE_RANKS];
    ith_request *requests[DEPTH] = {NULL};
    (void)user;
    if (rank)
        suite_nap(0.02 * rank);
    for (int i = 0; i < COUNT; i++) {
        SUITE_TRY(context, ith_comm_wait(comm, &requests[i % DEPTH]));
        values[i] = rank ? 0 : 7 * i;
        for (int peer = 1; peer < ranks; peer++)
            transfers[i][peer] = suite_whole(rank ? 0 : peer, &values[i], sizeof values[i]);
        int count = i % 3 ? 1 : 0; /* every third exchange is empty */
        SUITE_TRY(context, ith_comm_post(comm, &transfers[i][1], rank ? 0 : count * (ranks - 1), &transfers[i][1],
                                         rank ? count : 0, &requests[i % DEPTH]));
    }
    for (int i = 0; i < DEPTH; i++)
        SUITE_TRY(context, ith_comm_wait(comm, &requests[i]));
    for (int i = 0; i < COUNT; i++)
        SUITE_CHECK(context, values[i] == (i % 3 || !rank ? 7 * i : 0));
    return ITH_OK;
}

static void a_sender_runs_ahead(void **state)
{
    static const roughness rough = {.seed = 5, .full = 30, .unsettled = true};
    (void)state;
    for (int each = 1; each <= 3; each++) {
        wire_task t = {.ranks = 4, .each = each, .fn = run_ahead_in_rank, .how = each == 2 ? &rough : NULL};
        assert_int_equal(wire_run_threads(&t), 0);
    }
}

/* ---- Processes that die or stop -------------------------------------------------------------------------------- */

typedef struct doom {
    int signal;
    double limit; /* seconds */
} doom;

/* Data go from rank to rank, one exchange a hop, so that each rank waits for the rank before it. Rank 1's process dies
 * or stops. */
static ith_status chain_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int rank = ith_comm_rank(comm), ranks = ith_comm_size(comm);
    char *memory = calloc(1, 100000);
    SUITE_CHECK(context, memory);
    const doom *d = user;
    SUITE_TRY(context, ith_comm_barrier(comm));
    ith_comm_set_timeout(comm, d->limit);
    if (rank == 1) {
        suite_nap(0.05);
        raise(d->signal);
    }
    double begin = suite_seconds();
    ith_status status = ITH_OK;
    for (int hop = 1; hop < ranks && !status; hop++) {
        ith_transfer to = suite_whole(hop, memory, 100000), from = suite_whole(hop - 1, memory, 100000);
        status = ith_comm_exchange(comm, &to, rank == hop - 1, &from, rank == hop);
    }
    if (!status)
        status = ith_comm_barrier(comm);
    double seconds = suite_seconds() - begin;
    free(memory);
    SUITE_CHECK(context, strstr(ith_context_error(context), "rank 1 (host host0"));
    if (d->signal == SIGKILL)
        SUITE_CHECK(context, status == ITH_ERR_ABORTED && seconds < 0.7 * d->limit &&
                                 strstr(ith_context_error(context), "died"));
    else
        SUITE_CHECK(context, status == ITH_ERR_TIMEOUT && seconds < 3.3 * d->limit);
    return ITH_OK;
}

/* The number of ranks that do not see the expected failure. */
static int fail_in_chain(doom d)
{
    wire_task t = {.ranks = 5, .each = 1, .fn = chain_in_rank, .user = &d};
    pid_t pids[LINK_PROCESSES];
    int processes = wire_start(&t, pids), status = 0, failed = 0;
    for (int p = 0; p < processes; p++)
        if (p != 1) {
            waitpid(pids[p], &status, 0);
            failed += status != 0;
        }
    kill(pids[1], SIGKILL);
    waitpid(pids[1], &status, 0);
    return failed;
}

/* A busy machine may hold up other ranks too, so longer limits are tried as well. */
static void the_dead_and_the_stopped_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        double limit = 1.5;
        while (fail_in_chain((doom){i ? SIGSTOP : SIGKILL, limit}) && limit < 20)
            limit *= 4;
        assert_true(limit < 20);
    }
}

/* ---- Slow links ------------------------------------------------------------------------------------------------ */

/* Data travel for three times the time limit. The limit is ten times the pause that `user` points to. Both ranks only
 * wait meanwhile. */
static ith_status slow_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    const double pause = *(const double *)user;
    bool sends = ith_comm_rank(comm) == 0;
    int64_t bytes = 30 * 131072;
    char *memory = calloc(1, (size_t)bytes);
    ith_transfer t = suite_whole(sends ? 1 : 0, memory, bytes);
    SUITE_CHECK(context, memory);
    ith_comm_set_timeout(comm, 10 * pause);
    double begin = suite_seconds();
    ith_status status = ith_comm_exchange(comm, &t, sends, &t, !sends);
    free(memory);
    SUITE_CHECK(context, !status && suite_seconds() - begin > 24 * pause);
    return ITH_OK;
}

/* A busy machine may hold up a rank for the time limit, so slower links are tried as well. */
static void data_that_move_are_no_silence(void **state)
{
    roughness slow = {.pause = 0.05};
    wire_task t = {.ranks = 2, .each = 1, .fn = slow_in_rank, .user = &slow.pause, .how = &slow};
    (void)state;
    while (wire_run_threads(&t) && slow.pause < 2)
        slow.pause *= 4;
    assert_true(slow.pause < 2);
}

/* ---- Places ---------------------------------------------------------------------------------------------------- */

/* Checks the place of each rank, and which groups lie in one process. A process has two ranks, and a host two
 * processes. */
static ith_status place_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    char name[16];
    int mine = ith_comm_rank(comm) / 2;
    ith_comm *part = NULL;
    (void)user;
    for (int rank = 0; rank < ith_comm_size(comm); rank++) {
        ith_place place = ITH_PLACE_INIT;
        SUITE_TRY(context, ith_comm_place(comm, rank, &place));
        snprintf(name, sizeof name, "host%d", rank / 4);
        SUITE_CHECK(context, place.process == rank / 2 && place.host == rank / 4 && place.pid == 1000 + rank / 2);
        SUITE_CHECK(context, !strcmp(place.name, name));
    }
    SUITE_TRY(context, ith_comm_split(comm, mine, 0, &part));
    ith_place last = ITH_PLACE_INIT;
    SUITE_TRY(context, ith_comm_place(part, ith_comm_size(part) - 1, &last));
    SUITE_CHECK(context, last.process == mine);
    ith_comm_destroy(&part);
    return ITH_OK;
}

static void places_are_known(void **state)
{
    wire_task t = {.ranks = 5, .each = 2, .fn = place_in_rank};
    (void)state;
    assert_int_equal(wire_run_threads(&t), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_pass), /* before any thread is started */
        cmocka_unit_test(the_dead_and_the_stopped_are_named),
        cmocka_unit_test(threads_pass),
        cmocka_unit_test(rough_links_pass),
        cmocka_unit_test(mismatches_end_the_group),
        cmocka_unit_test(more_than_2_31_bytes_arrive),
        cmocka_unit_test(a_sender_runs_ahead),
        cmocka_unit_test(data_that_move_are_no_silence),
        cmocka_unit_test(places_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
