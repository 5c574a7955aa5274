/* SPDX-License-Identifier: Apache-2.0 */
/* One trace of several processes, whose clocks differ by hours and drift. In the file every span has its true time on
 * rank 0's clock, within the error that the file gives. The oracle is the clock of this machine; the library sees a
 * shifted clock in each process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/trace.h"
#include "comm/comm.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/rank_group.h"
#include "support/socket_group.h"
#include "support/temporary.h"
#include "support/times.h"
#include "support/told_group.h"
#include "support/trace_file.h"

#include "socket_meeting.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- The shifted clock ----------------------------------------------------------------------------------------- */

static double clock_rate = 1, clock_shift;
static bool is_hasty = true; /* otherwise each 40th call of clock_gettime takes 0.11 s */

static double true_seconds(void)
{
    struct timespec time;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Takes the place of the C library's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    long status = syscall(SYS_clock_gettime, clock, time);
    if (clock != CLOCK_MONOTONIC || status)
        return (int)status;
    static int calls;
    if (!is_hasty && ++calls % 40 == 0)
        nap(0.11);
    double seconds = true_seconds() * clock_rate + clock_shift;
    time->tv_sec = (time_t)floor(seconds);
    time->tv_nsec = (long)((seconds - floor(seconds)) * 1e9);
    return 0;
}

/* ---- Processes ------------------------------------------------------------------------------------------------- */

enum { PROCESSES = 3, SPANS = 12 };

#define DRIFT 0.02 /* the clock of rank r is faster by r times this share */

/* For each span of each process: the true times just before and after it began, and just before and after it ended. */
typedef struct board {
    double times[PROCESSES][SPANS][4];
    const char *folder;
    bool aligned; /* whether the processes call ith_trace_align */
} board;

static const char *const span_names[SPANS] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"};

static ith_status record_spans(ith_context *own, double (*times)[4])
{
    for (int i = 0; i < SPANS; i++) {
        times[i][0] = true_seconds();
        double begin = ith_trace_begin(own);
        times[i][1] = true_seconds();
        nap(0.004);
        times[i][2] = true_seconds();
        ith_trace_end(own, begin, span_names[i], i % 2 ? "compute" : "wait");
        times[i][3] = true_seconds();
    }
    ith_trace_counter(own, "hidden", 0.5);
    return ITH_OK;
}

static int be_process(int rank, const char *folder, void *user)
{
    board *b = user;
    char name[32];
    clock_rate = 1 + DRIFT * rank, clock_shift = rank == 1 ? -5000 : 7200.25 * rank;
    ith_context *own = NULL;
    ith_status status = ith_context_create(NULL, &own);
    ith_comm *comm = status ? NULL : socket_group_join(own, folder, rank, PROCESSES);
    if (!comm)
        return 1;
    status = ith_trace_start(own, 1000);
    is_hasty = rank != 1;
    if (!status && b->aligned)
        status = ith_trace_align(comm);
    is_hasty = true;
    if (!status)
        status = record_spans(own, b->times[rank]);
    snprintf(name, sizeof name, "own.%d", rank);
    if (!status)
        status = ith_trace_save(own, temporary_path(b->folder, name));
    if (!status)
        status = ith_trace_gather(comm);
    if (!status && rank == 0)
        status = ith_trace_save(own, temporary_path(b->folder, "trace"));
    if (!status)
        status = ith_comm_barrier(comm); /* the group works as before */
    if (status)
        fprintf(stderr, "rank %d: %s\n", rank, ith_context_error(own));
    ith_comm_destroy(&comm);
    ith_context_destroy(&own);
    return status != ITH_OK;
}

static trace_file read_trace(const char *path)
{
    trace_file file;
    char *text = temporary_read(path, NULL);
    assert_true(trace_file_parse(text, &file));
    free(text);
    return file;
}

static const trace_event *find_event(const trace_file *file, const char *ph, const char *name, int rank)
{
    for (int i = 0; i < file->count; i++)
        if (!strcmp(file->events[i].ph, ph) && !strcmp(file->events[i].name, name) && (int)file->events[i].pid == rank)
            return &file->events[i];
    return NULL;
}

/* The error of a rank's clock in seconds, as the file gives it. */
static double told_error(const trace_file *file, int rank)
{
    const trace_event *labels = find_event(file, "M", "process_labels", rank);
    double microseconds = 0;
    if (rank == 0)
        return labels ? 1e9 : 0;
    assert_non_null(labels);
    assert_int_equal(sscanf(labels->arg_labels, "clock within %lf us", &microseconds), 1);
    return microseconds * 1e-6;
}

/* Checks that every span of a rank has its true time in the file, within `error`. The true time at which the file's
 * time begins lies between zero[0] and zero[1]. */
static void check_spans(const board *b, const trace_file *file, int rank, const double *zero, double error)
{
    for (int i = 0; i < SPANS; i++) {
        const trace_event *e = find_event(file, "X", span_names[i], rank);
        const double *t = b->times[rank][i];
        assert_non_null(e);
        double begin = e->ts * 1e-6, end = begin + e->dur * 1e-6, slack = error + 1e-8;
        if (begin < t[0] - zero[1] - slack || begin > t[1] - zero[0] + slack || end < t[2] - zero[1] - slack ||
            end > t[3] - zero[0] + slack)
            fail_msg("rank %d, span %d: %.6f to %.6f s in the file; begun %.6f to %.6f, ended %.6f to %.6f; %.1f us",
                     rank, i, begin, end, t[0] - zero[0], t[1] - zero[0], t[2] - zero[0], t[3] - zero[0], error * 1e6);
    }
}

/* Sets zero[0] and zero[1], between which the file's time begins, from the spans of rank 0, whose clock is the true
 * clock. */
static void find_zero(const board *b, const trace_file *file, double *zero)
{
    zero[0] = -INFINITY, zero[1] = INFINITY;
    for (int i = 0; i < SPANS; i++) {
        const trace_event *e = find_event(file, "X", span_names[i], 0);
        assert_non_null(e);
        zero[0] = fmax(zero[0], b->times[0][i][0] - e->ts * 1e-6 - 1e-9);
        zero[1] = fmin(zero[1], b->times[0][i][1] - e->ts * 1e-6 + 1e-9);
    }
}

static void check_files(const board *b)
{
    char host[64], expected[128], name[32];
    double zero[2];
    trace_file file = read_trace(temporary_path(b->folder, "trace"));
    find_zero(b, &file, zero);
    assert_int_equal(gethostname(host, sizeof host), 0);
    for (int rank = 0; rank < PROCESSES; rank++) {
        double error = told_error(&file, rank);
        assert_true(error < 0.05);
        /* if the processes do not compare clocks at their start, the drift is not corrected */
        check_spans(b, &file, rank, zero, b->aligned ? error : error + DRIFT * rank * 5);
        snprintf(expected, sizeof expected, "rank %d (%s)", rank, host);
        assert_string_equal(find_event(&file, "M", "process_name", rank)->arg_name, expected);
        assert_non_null(find_event(&file, "C", "hidden", rank));
        snprintf(name, sizeof name, "own.%d", rank);
        trace_file own = read_trace(temporary_path(b->folder, name));
        if (b->aligned) /* a process's own file, as after a failure: it does not know the drift since the start */
            check_spans(b, &own, rank, zero, told_error(&own, rank) + DRIFT * rank * 5);
        free(own.events);
    }
    free(file.events);
}

/* The largest error of a rank's clock. */
static double largest_error(const board *b)
{
    trace_file file = read_trace(temporary_path(b->folder, "trace"));
    double largest = 0;
    for (int rank = 0; rank < PROCESSES; rank++)
        largest = fmax(largest, told_error(&file, rank));
    free(file.events);
    return largest;
}

/* When they compare clocks at the start, process 1 is held up a few times. The rounds of that time do not count. On a
 * busy machine the comparison of clocks may be inexact, and runs may be long; then the processes run again. */
static void spans_lie_where_they_were(void **state)
{
    (void)state;
    int statuses[PROCESSES];
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(b != MAP_FAILED);
    for (int aligned = 0; aligned < 2; aligned++) {
        char *folder = temporary_folder();
        b->folder = folder, b->aligned = aligned;
        double begin, seconds;
        int attempts = 0;
        do {
            begin = true_seconds();
            assert_int_equal(socket_run_processes(PROCESSES, be_process, b, statuses), 0);
            seconds = true_seconds() - begin;
        } while ((seconds > 4 || largest_error(b) >= 0.05) && ++attempts < 20);
        check_files(b);
        temporary_remove(folder);
    }
    munmap(b, sizeof *b);
}

/* ---- Threads --------------------------------------------------------------------------------------------------- */

static ith_status trace_in_rank(ith_context *own, ith_comm *comm, void *user)
{
    (void)user;
    double times[SPANS][4];
    ith_status status = ith_trace_align(comm);
    if (!status)
        status = record_spans(own, times);
    return status ? status : ith_trace_gather(comm);
}

static int count_spans(const trace_file *file, int rank)
{
    int count = 0;
    for (int i = 0; i < SPANS; i++)
        count += find_event(file, "X", span_names[i], rank) != NULL;
    return count;
}

/* Ranks of one process have one trace, so nothing is sent. Their names have no host, and there are no errors of clocks.
 * Waits have a row of their own. */
static void threads_have_one_trace(void **state)
{
    (void)state;
    char *folder = temporary_folder(), name[32];
    assert_int_equal(ith_trace_start(context, 1000), ITH_OK);
    assert_int_equal(ith_run_ranks(context, 3, 3, trace_in_rank, NULL), ITH_OK);
    assert_int_equal(ith_trace_save(context, temporary_path(folder, "trace")), ITH_OK);
    trace_file file = read_trace(temporary_path(folder, "trace"));
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(count_spans(&file, rank), SPANS);
        assert_null(find_event(&file, "M", "process_labels", rank));
        snprintf(name, sizeof name, "rank %d", rank);
        assert_string_equal(find_event(&file, "M", "process_name", rank)->arg_name, name);
        const trace_event *wait = find_event(&file, "X", "0", rank), *work = find_event(&file, "X", "1", rank);
        assert_true(wait->tid != work->tid);
        for (int i = 0; i < file.count; i++)
            if (!strcmp(file.events[i].name, "thread_name") && file.events[i].pid == rank)
                assert_string_equal(file.events[i].arg_name, file.events[i].tid == wait->tid ? "waiting" : "computing");
    }
    free(file.events);
    assert_int_equal(ith_trace_start(context, 0), ITH_OK);
    temporary_remove(folder);
}

static void trace_in_group(rank_group *g, int rank, void *user)
{
    ((ith_status *)user)[rank] = trace_in_rank(g->contexts[rank], g->comms[rank], NULL);
}

/* If the contexts of a process's ranks are not clones of one another, each has a trace of its own. One rank here
 * records none, and the last one begins first. */
static void traces_of_one_process_are_gathered(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    rank_group g = {.ranks = 3};
    ith_status statuses[3];
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(ith_context_create(NULL, &g.contexts[i]), ITH_OK);
        if (i != 1)
            assert_int_equal(ith_trace_start(g.contexts[i], i ? 5 : 1000), ITH_OK);
        if (i == 2) {
            ith_trace_end(g.contexts[2], ith_trace_begin(g.contexts[2]), "early", "compute");
            nap(0.05);
        }
    }
    assert_int_equal(ith_comm_create_local(g.contexts, 3, g.comms), ITH_OK);
    group_run(&g, trace_in_group, statuses);
    for (int i = 0; i < 3; i++)
        assert_int_equal(statuses[i], ITH_OK);
    assert_int_equal(ith_trace_save(g.contexts[0], temporary_path(folder, "trace")), ITH_OK);
    trace_file file = read_trace(temporary_path(folder, "trace"));
    assert_int_equal(count_spans(&file, 0), SPANS);
    assert_int_equal(count_spans(&file, 1), 0);
    assert_true(count_spans(&file, 2) < SPANS && file.lost > 0);
    assert_non_null(find_event(&file, "X", "early", 0));      /* its context had no rank yet */
    assert_true(find_event(&file, "X", "0", 0)->ts >= 50000); /* microseconds since the first trace began */
    assert_null(find_event(&file, "M", "process_labels", 2)); /* its clock is rank 0's */
    assert_non_null(find_event(&file, "X", "a barrier", 2) ? "" : find_event(&file, "X", "an agreement", 2)->name);
    free(file.events);
    group_destroy(&g);
    ith_context_destroy(&g.contexts[0]);
    temporary_remove(folder);
}

/* Rank 1 of three is in a process of its own. */
static void tell_place(void *state, int rank, ith_place *place)
{
    place->process = place->host = told_world_rank(state, rank) == 1;
    snprintf(place->name, sizeof place->name, "%s", place->host ? "b" : "a");
}

/* Names have hosts as soon as any rank is in another process. */
static void hosts_are_named_if_there_are_several_processes(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    rank_group g = {.ranks = 3};
    ith_status statuses[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ith_context_create(NULL, &g.contexts[i]), ITH_OK);
        assert_int_equal(ith_trace_start(g.contexts[i], 1000), ITH_OK);
    }
    told_place = tell_place;
    assert_int_equal(told_group_create(g.contexts, 3, g.comms), ITH_OK);
    group_run(&g, trace_in_group, statuses);
    for (int i = 0; i < 3; i++)
        assert_int_equal(statuses[i], ITH_OK);
    assert_int_equal(ith_trace_save(g.contexts[0], temporary_path(folder, "trace")), ITH_OK);
    trace_file file = read_trace(temporary_path(folder, "trace"));
    static const char *const names[] = {"rank 0 (a)", "rank 1 (b)", "rank 2 (a)"};
    for (int rank = 0; rank < 3; rank++)
        assert_string_equal(find_event(&file, "M", "process_name", rank)->arg_name, names[rank]);
    assert_non_null(find_event(&file, "M", "process_labels", 1));
    free(file.events);
    group_destroy(&g);
    ith_context_destroy(&g.contexts[0]);
    temporary_remove(folder);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static ith_status align_without(ith_context *own, ith_comm *comm, void *user)
{
    (void)user;
    bool refused = ith_trace_align(comm) == ITH_ERR_ARGUMENT && strstr(ith_context_error(own), "ith_trace_start") &&
                   ith_trace_gather(comm) == ITH_ERR_ARGUMENT;
    return refused ? ith_comm_barrier(comm) : ITH_ERR_INTERNAL;
}

static void a_trace_is_needed(void **state)
{
    (void)state;
    assert_int_equal(ith_run_ranks(context, 2, 2, align_without, NULL), ITH_OK);
    assert_int_equal(ith_trace_align(NULL), ITH_OK);
    assert_int_equal(ith_trace_gather(NULL), ITH_OK);
}

static void gather_in_group(rank_group *g, int rank, void *user)
{
    ((ith_status *)user)[rank] = ith_trace_gather(g->comms[rank]);
}

static void meet_in_group(rank_group *g, int rank, void *user)
{
    ((ith_status *)user)[rank] = ith_comm_barrier(g->comms[rank]);
}

/* Refuses allocation number n of one rank in ith_trace_gather. Returns whether the rank allocates so often. */
static bool refuse_in_gather(int rank, long n)
{
    failing_allocator allocators[3];
    rank_group g = {.ranks = 3};
    ith_status statuses[3];
    for (int i = 0; i < 3; i++) {
        g.contexts[i] = failing_context(&allocators[i], -1);
        assert_int_equal(ith_trace_start(g.contexts[i], 100), ITH_OK);
    }
    assert_int_equal(ith_comm_create_local(g.contexts, 3, g.comms), ITH_OK);
    for (int i = 0; i < 3; i++)
        ith_comm_set_timeout(g.comms[i], 5);
    const long first = atomic_load(&allocators[rank].calls);
    allocators[rank].refuse = first + n;
    group_run(&g, gather_in_group, statuses);
    const bool refused = atomic_load(&allocators[rank].calls) > first + n;
    for (int i = 0; i < 3; i++)
        assert_int_equal(statuses[i], refused ? ITH_ERR_MEMORY : ITH_OK);
    group_run(&g, meet_in_group, statuses);
    for (int i = 0; i < 3; i++)
        assert_int_equal(statuses[i], ITH_OK);
    group_destroy(&g);
    ith_context_destroy(&g.contexts[0]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&allocators[i].held), 0);
    return refused;
}

/* If one rank has no memory, all ranks fail, and the group stays usable. */
static void a_rank_without_memory_fails_on_all_ranks(void **state)
{
    (void)state;
    long most = 0;
    for (int rank = 0; rank < 3; rank++)
        for (long n = 0; refuse_in_gather(rank, n); n++)
            most = n > most ? n : most;
    assert_true(most >= 3);
}

/* A message with a trace that is cut off anywhere, or has wrong numbers, may be refused or accepted, but is never read
 * beyond its end. */
static void damaged_packages_are_refused(void **state)
{
    (void)state;
    void *package = NULL;
    int64_t bytes = 0;
    double times[SPANS][4];
    char *folder = temporary_folder();
    assert_int_equal(ith_trace_start(context, 100), ITH_OK);
    record_spans(context, times);
    assert_int_equal(ith_trace_pack(context, &package, &bytes), ITH_OK);
    for (int64_t cut = 0; cut < bytes; cut++) {
        char *part = malloc((size_t)cut + 1);
        memcpy(part, package, (size_t)cut);
        assert_int_equal(ith_trace_add(context, part, cut), ITH_ERR_FORMAT);
        free(part);
    }
    for (int64_t at = 0; at < bytes; at++) {
        char *other = malloc((size_t)bytes);
        memcpy(other, package, (size_t)bytes);
        other[at] = (char)(other[at] ^ 0x80);
        if (at % 8 > 3)
            ith_trace_add(context, other, bytes);
        free(other);
    }
    assert_int_equal(ith_trace_save(context, temporary_path(folder, "trace")), ITH_OK);
    ith_free(context, package);
    assert_int_equal(ith_trace_start(context, 0), ITH_OK);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_lie_where_they_were), /* first: it forks */
        cmocka_unit_test(threads_have_one_trace),
        cmocka_unit_test(traces_of_one_process_are_gathered),
        cmocka_unit_test(hosts_are_named_if_there_are_several_processes),
        cmocka_unit_test(a_rank_without_memory_fails_on_all_ranks),
        cmocka_unit_test(a_trace_is_needed),
        cmocka_unit_test(damaged_packages_are_refused),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
