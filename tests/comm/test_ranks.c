/* SPDX-License-Identifier: Apache-2.0 */
/* ith_run_ranks: a failure of one rank is returned on all ranks, with one status and one sentence, and no memory is
 * left; threads are shared out; either all ranks run or none. The tests for every transport are in suite/. */
#include "base/clock.h"
#include "comm/comm.h"
#include "support/in_rank.h"
#include "support/memory.h"
#include "support/sanitizers.h"
#include "support/times.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cmocka.h>

#define MOST_RANKS 5

/* Runs fn on ranks. There is a sentence afterwards if a rank failed, and no memory is left. */
static ith_status run_quietly(int ranks, ith_rank_fn fn, void *user)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, 0, fn, user);
    assert_int_equal(!status, !ith_context_error(context)[0]);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    return status;
}

/* ---- A rank that fails ----------------------------------------------------------------------------------------- */

/* One rank fails before its operation number `at`, in one of several ways, while the others go on. */
typedef enum manner { MANNER_RETURN, MANNER_ABORT, MANNER_LEAVE, MANNER_MISMATCH, MANNER_WRONG_KIND } manner;

typedef struct mishap {
    int rank, at;
    manner manner;
    double limit; /* seconds */
    ith_status seen[MOST_RANKS];
    char sentences[MOST_RANKS][ITH_ERROR_BYTES];
} mishap;

#define OPERATIONS 6

/* Takes part in operation number n % OPERATIONS. odd: with other arguments than the other ranks. */
static ith_status operate(ith_comm *comm, int n, float *memory, bool odd)
{
    int ranks = comm->size;
    ith_transfer sends[MOST_RANKS], receives[MOST_RANKS];
    for (int peer = 0; peer < ranks; peer++) {
        sends[peer] = (ith_transfer){peer, {.data = memory, .count = {2, 3}, .stride = {16, 4}, .bytes = odd ? 3 : 4}};
        receives[peer] = (ith_transfer){peer, {.data = memory + 64 + 16 * peer, .count = {1, 1}, .bytes = 24}};
    }
    switch (n % OPERATIONS) {
    case 0: return ith_comm_exchange(comm, sends, ranks, receives, ranks);
    case 1: return ith_comm_allreduce(comm, memory, odd ? 2 : 3, ITH_REDUCE_SUM);
    case 2: return ith_comm_allgather(comm, memory, odd ? 7 : 8, memory + 64);
    case 3: return ith_comm_broadcast(comm, memory, odd ? 4 : 8, ranks - 1);
    case 4: return odd ? ith_comm_allreduce(comm, memory, 1, ITH_REDUCE_MAX) : ith_comm_barrier(comm);
    default: return ith_comm_exchange(comm, sends, odd ? ranks - 1 : ranks, receives, ranks);
    }
}

static ith_status go_wrong(ith_context *context, ith_comm *comm, const mishap *m, float *memory)
{
    switch (m->manner) {
    case MANNER_RETURN: return ith_fail(context, ITH_ERR_IO, "rank %d lost its disk", m->rank);
    case MANNER_ABORT:
        ith_fail(context, ITH_ERR_IO, "rank %d lost its disk", m->rank);
        ith_comm_abort(comm, ITH_ERR_IO);
        return ith_comm_barrier(comm);
    case MANNER_LEAVE: return ITH_OK;
    case MANNER_MISMATCH: return operate(comm, m->at, memory, true);
    default: return operate(comm, m->at + 2, memory, false); /* takes part in another operation than the others */
    }
}

static ith_status suffer(ith_context *context, ith_comm *comm, void *user)
{
    mishap *m = user;
    int rank = ith_comm_rank(comm);
    float memory[64 + 16 * MOST_RANKS] = {0};
    ith_status status = ITH_OK;
    for (int n = 0; !status && n < 2 * OPERATIONS; n++) {
        bool odd_one_out = rank == m->rank && n == m->at;
        status = odd_one_out ? go_wrong(context, comm, m, memory) : operate(comm, n, memory, false);
        if (odd_one_out && m->manner == MANNER_LEAVE)
            return ITH_OK;
    }
    m->seen[rank] = status;
    snprintf(m->sentences[rank], ITH_ERROR_BYTES, "%s", ith_context_error(context));
    return status;
}

/* One run with one mishap. */
static void check_mishap(int ranks, int rank, int at, manner how)
{
    mishap m = {.rank = rank, .at = at, .manner = how};
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, ranks, suffer, &m);
    static const ith_status expected[] = {ITH_ERR_IO, ITH_ERR_IO, ITH_ERR_ABORTED, ITH_ERR_ARGUMENT, ITH_ERR_ARGUMENT};
    assert_int_equal(status, expected[how]);
    assert_string_not_equal(ith_context_error(context), "");
    if (how == MANNER_RETURN || how == MANNER_ABORT) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "rank %d lost its disk", rank);
        assert_string_equal(ith_context_error(context), sentence);
    }
    for (int r = 0; r < ranks; r++) {
        if (r == rank && how == MANNER_LEAVE)
            continue;
        assert_int_equal(m.seen[r], status);
        assert_string_equal(m.sentences[r], ith_context_error(context));
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

static void one_failure_ends_the_call_on_all(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int rank = 0; rank < ranks; rank++)
            for (int at = 0; at < OPERATIONS; at++)
                for (int how = MANNER_RETURN; how <= MANNER_WRONG_KIND; how++)
                    check_mishap(ranks, rank, at, (manner)how);
}

static ith_status broadcast_from_itself(ith_context *context, ith_comm *comm, void *user)
{
    int value = 0;
    (void)context;
    (void)user;
    return ith_comm_broadcast(comm, &value, sizeof value, ith_comm_rank(comm));
}

static void a_sentence_says_how_two_broadcasts_differ(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_run_ranks(context, 2, 2, broadcast_from_itself, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "in a broadcast with another root or reduction (exchange 0"));
    ith_context_destroy(&context);
}

/* The first rank fails at once, without its communicator, and the second one later. */
static ith_status fail_one_by_one(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    if (!ith_comm_rank(comm))
        return ith_fail(context, ITH_ERR_IO, "the disk is lost");
    while (!ith_comm_failed(comm))
        nap(1e-3);
    return ith_fail(context, ITH_ERR_UNSUPPORTED, "the second rank fails too");
}

/* Ranks of one process need not be named. */
static void the_first_failure_counts(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_run_ranks(context, 2, 2, fail_one_by_one, NULL), ITH_ERR_IO);
    assert_string_equal(ith_context_error(context), "the disk is lost");
    ith_context_destroy(&context);
}

static ith_status hear_an_abort(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    if (!ith_comm_rank(comm)) {
        ith_fail(context, ITH_ERR_IO, "the disk is lost");
        ith_comm_abort(comm, ITH_ERR_IO);
    }
    RANK_CHECK(context, ith_comm_barrier(comm) == ITH_ERR_IO);
    RANK_CHECK(context, !strcmp(ith_context_error(context), "the disk is lost"));
    return ITH_OK;
}

static void an_abort_is_heard_as_it_was_said(void **state)
{
    (void)state;
    assert_int_equal(run_quietly(3, hear_an_abort, NULL), ITH_OK);
}

/* ---- Ranks that stop ------------------------------------------------------------------------------------------- */

static bool always(void *user)
{
    (void)user;
    return true;
}

/* Gathers more bytes than are copied at once, although this rank no longer wants the data of exchanges. */
static ith_status gather_unwanted(ith_context *context, ith_comm *comm, void *user)
{
    enum { BYTES = 100000 };
    static char all[2][2 * BYTES], mine[2][BYTES];
    const int rank = ith_comm_rank(comm);
    (void)user;
    memset(mine[rank], 'a' + rank, BYTES);
    comm->unwanted = always;
    RANK_TRY(ith_comm_allgather(comm, mine[rank], BYTES, all[rank]));
    for (int i = 0; i < 2 * BYTES; i++)
        RANK_CHECK(context, all[rank][i] == 'a' + i / BYTES);
    return ITH_OK;
}

static void collectives_of_ranks_that_stop_have_results(void **state)
{
    (void)state;
    assert_int_equal(run_quietly(2, gather_unwanted, NULL), ITH_OK);
}

enum { LARGE = 100000 }; /* bytes that are not copied before a rank waits */

static atomic_int steps; /* how far the ranks of one of the next two tests have come */

static void await_step(int step)
{
    for (double begin = ith_clock_seconds(); atomic_load(&steps) < step && ith_clock_seconds() < begin + 20;)
        nap(1e-3);
}

/* Rank 0 waits at length. Rank 1 sends, and does not wait before rank 0 has its data. */
static ith_status wait_at_length(ith_context *context, ith_comm *comm, void *user)
{
    static char data[2][LARGE];
    const int rank = ith_comm_rank(comm);
    const ith_transfer transfer = {!rank, {.data = data[rank], .count = {1, 1}, .bytes = LARGE}};
    ith_request *request = NULL;
    bool done = true;
    (void)user;
    if (rank)
        nap(0.1);
    RANK_TRY(ith_comm_post(comm, &transfer, rank, &transfer, !rank, &request));
    if (rank)
        await_step(1);
    else
        RANK_TRY(comm->transport.wait(comm->transport_state, request->number, 10, &done));
    atomic_store(&steps, 1);
    RANK_CHECK(context, done);
    return ith_comm_wait(comm, &request);
}

static void a_post_wakes_who_waits_for_it(void **state)
{
    (void)state;
    atomic_store(&steps, 0);
    assert_int_equal(run_quietly(2, wait_at_length, NULL), ITH_OK);
}

/* Rank 1 leaves while rank 0 waits for it at length. */
static ith_status leave_who_waits(ith_context *context, ith_comm *comm, void *user)
{
    static char data[LARGE];
    const ith_transfer transfer = {1, {.data = data, .count = {1, 1}, .bytes = LARGE}};
    ith_request *request = NULL;
    bool done = true;
    (void)user;
    if (ith_comm_rank(comm)) {
        nap(0.1);
        return ITH_OK;
    }
    RANK_TRY(ith_comm_post(comm, NULL, 0, &transfer, 1, &request));
    const double begin = ith_clock_seconds();
    const ith_status status = comm->transport.wait(comm->transport_state, request->number, 10, &done);
    RANK_CHECK(context, status == ITH_ERR_ABORTED && ith_clock_seconds() < begin + 9);
    return ith_comm_wait(comm, &request);
}

static void who_leaves_wakes_who_waits_for_it(void **state)
{
    (void)state;
    assert_int_equal(run_quietly(2, leave_who_waits, NULL), ITH_ERR_ABORTED);
}

/* The transport asks in the middle of a copy whether its data are still wanted. The group ends meanwhile. */
static bool end_meanwhile(void *user)
{
    (void)user;
    atomic_store(&steps, 2);
    await_step(3);
    nap(0.05);
    return true;
}

/* Rank 1 ends the group while rank 0 copies from its memory, and still waits for data of rank 2. */
static ith_status end_during_a_copy(ith_context *context, ith_comm *comm, void *user)
{
    static char data[3][2][LARGE];
    const int rank = ith_comm_rank(comm);
    ith_transfer transfers[3];
    ith_request *request = NULL;
    (void)user;
    for (int peer = 0; peer < 3; peer++)
        transfers[peer] = (ith_transfer){peer, {.data = data[rank][peer % 2], .count = {1, 1}, .bytes = LARGE}};
    if (rank == 0) {
        await_step(1);
        comm->unwanted = end_meanwhile;
        const ith_status status = ith_comm_exchange(comm, NULL, 0, &transfers[1], 2);
        await_step(4); /* rank 1 hears of the end of the copy, though this rank has not left */
        return status;
    }
    if (rank == 1) {
        RANK_TRY(ith_comm_post(comm, &transfers[0], 1, &transfers[2], 1, &request));
        atomic_store(&steps, 1);
        await_step(2);
        atomic_store(&steps, 3);
        ith_fail(context, ITH_ERR_IO, "the disk is lost");
        const double begin = ith_clock_seconds();
        ith_comm_abort(comm, ITH_ERR_IO);
        atomic_store(&steps, ith_clock_seconds() < begin + 15 ? 4 : 5);
        return ith_comm_wait(comm, &request);
    }
    while (!ith_comm_failed(comm))
        nap(1e-3);
    return ITH_OK;
}

/* An abort returns when nobody uses the memory of its rank any more. */
static void an_abort_outlasts_a_copy(void **state)
{
    (void)state;
    atomic_store(&steps, 0);
    assert_int_equal(run_quietly(3, end_during_a_copy, NULL), ITH_ERR_IO);
    assert_int_equal(atomic_load(&steps), 4);
}

/* ---- Time limits ----------------------------------------------------------------------------------------------- */

/* One rank comes later than the time limit of the others. */
static ith_status dawdle(ith_context *context, ith_comm *comm, void *user)
{
    mishap *m = user;
    int rank = ith_comm_rank(comm);
    float value = 1;
    ith_comm_set_timeout(comm, rank == m->rank ? 0 : m->limit);
    if (rank == m->rank)
        nap(4 * m->limit);
    m->seen[rank] = ith_comm_allreduce(comm, &value, 1, ITH_REDUCE_SUM);
    snprintf(m->sentences[rank], ITH_ERROR_BYTES, "%s", ith_context_error(context));
    return m->seen[rank];
}

/* Whether the error message names the late rank. */
static bool names_the_last(int ranks, double limit)
{
    mishap m = {.rank = ranks - 1, .limit = limit};
    char named[32];
    ith_context *context = NULL;
    ith_context_create(NULL, &context);
    double begin = ith_clock_seconds();
    ith_status status = ith_run_ranks(context, ranks, 0, dawdle, &m);
    assert_true(status == ITH_ERR_TIMEOUT || status == ITH_OK);
    assert_true(ith_clock_seconds() - begin < 60);
    snprintf(named, sizeof named, "for rank %d in", ranks - 1);
    bool right = status && strstr(ith_context_error(context), named);
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(m.seen[r], status);
        assert_string_equal(m.sentences[r], ith_context_error(context));
    }
    ith_context_destroy(&context);
    return right;
}

/* A busy machine may keep other ranks from coming in time, so a longer limit is tried as well. */
static void a_wait_ends_in_time(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        double limit = 0.05;
        while (!names_the_last(ranks, limit) && limit < 10)
            limit *= 4;
        assert_true(limit < 10);
    }
}

/* Whether the stack of a rank's thread has the 512 KB that ithaca.h asks for, and room for the rank's function. */
static ith_status look_at_stack(ith_context *context, ith_comm *comm, void *user)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    (void)comm, (void)user;
    RANK_CHECK(context, pthread_getattr_np(pthread_self(), &attributes) == 0);
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    RANK_CHECK(context, bytes > 512 << 10);
    return ITH_OK;
}

/* Some C libraries give threads a stack of 128 KB, and `ulimit -s` may make it small too. */
static void ranks_have_the_stack_that_the_engine_needs(void **state)
{
    (void)state;
    pthread_attr_t usual, small;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 128 << 10), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    ith_status status = run_quietly(2, look_at_stack, NULL);
    pthread_setattr_default_np(&usual);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&usual);
    assert_int_equal(status, ITH_OK);
}

/* ---- What the ranks do together ------------------------------------------------------------------------------- */

/* After a barrier a rank sees the values that other ranks wrote before it. */
static ith_status barrier_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int *seen = user;
    for (int round = 0; round < 20; round++) {
        seen[ith_comm_rank(comm)] = round;
        RANK_TRY(ith_comm_barrier(comm));
        for (int r = 0; r < ith_comm_size(comm); r++)
            RANK_CHECK(context, seen[r] == round);
        RANK_TRY(ith_comm_barrier(comm));
    }
    return ITH_OK;
}

static void barriers_order_memory(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        int seen[MOST_RANKS] = {0};
        assert_int_equal(run_quietly(ranks, barrier_in_rank, seen), ITH_OK);
    }
}

/* If several ranks fail, all ranks get the failure of the lowest of them. `user` points to the set of failing ranks. */
static ith_status agree_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int failing = *(int *)user, rank = ith_comm_rank(comm); /* a bit for each rank */
    ith_status mine = ITH_OK;
    if (failing & (1 << rank))
        mine = ith_fail(context, rank ? ITH_ERR_IO : ITH_ERR_FORMAT, "rank %d is to blame", rank);
    ith_status status = ith_comm_agree(comm, mine);
    if (!failing) {
        RANK_CHECK(context, status == ITH_OK);
        return ITH_OK;
    }
    int lowest = __builtin_ctz((unsigned)failing);
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d is to blame", lowest);
    RANK_CHECK(context, status == (lowest ? ITH_ERR_IO : ITH_ERR_FORMAT));
    RANK_CHECK(context, !strcmp(ith_context_error(context), expected));
    return ith_comm_barrier(comm); /* the group can still be used */
}

static void ranks_agree(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int failing = 0; failing < 1 << ranks; failing++)
            assert_int_equal(run_quietly(ranks, agree_in_rank, &failing), ITH_OK);
}

/* ---- Memory and threads that are not to be had ----------------------------------------------------------------- */

static ith_status split_and_meet(ith_context *context, ith_comm *comm, void *user)
{
    (void)context, (void)user;
    ith_comm *half = NULL;
    RANK_TRY(ith_comm_split(comm, ith_comm_rank(comm) % 2, 0, &half));
    ith_status status = ith_comm_barrier(half);
    ith_comm_destroy(&half);
    return status;
}

/* Refuses one allocation of each run: the first, then the second, and so on. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    bool passed = false;
    for (long refuse = 0; !passed; refuse++) {
        assert_true(refuse < 1000);
        failing_allocator allocator;
        ith_context *context = failing_context(&allocator, refuse);
        if (!context) {
            assert_int_equal(refuse, 0);
            continue;
        }
        ith_status status = ith_run_ranks(context, 4, 0, split_and_meet, NULL);
        passed = atomic_load(&allocator.calls) <= refuse;
        assert_int_equal(status, passed ? ITH_OK : ITH_ERR_MEMORY);
        assert_int_equal(!status, !strstr(ith_context_error(context), "out of memory"));
        ith_context_destroy(&context);
        assert_int_equal(atomic_load(&allocator.held), 0);
    }
}

/* The same for ith_comm_create_local: all communicators are made or none. */
static void creation_by_hand_may_fail(void **state)
{
    (void)state;
    bool passed = false;
    for (long refuse = 1; !passed; refuse++) {
        failing_allocator allocator;
        ith_context *contexts[3] = {failing_context(&allocator, -1), NULL, NULL};
        assert_int_equal(ith_context_clone(contexts[0], &contexts[1]), ITH_OK);
        assert_int_equal(ith_context_clone(contexts[0], &contexts[2]), ITH_OK);
        allocator.refuse = 2 + refuse;
        ith_comm *comms[3];
        ith_status status = ith_comm_create_local(contexts, 3, comms);
        passed = atomic_load(&allocator.calls) <= allocator.refuse;
        assert_int_equal(status, passed ? ITH_OK : ITH_ERR_MEMORY);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(comms[i] != NULL, passed);
            ith_comm_destroy(&comms[i]);
        }
        for (int i = 2; i >= 0; i--)
            ith_context_destroy(&contexts[i]);
        assert_int_equal(atomic_load(&allocator.held), 0);
    }
}

static ith_status count_threads(ith_context *context, ith_comm *comm, void *user)
{
    int expected = ((int *)user)[ith_comm_rank(comm)], seen = 0;
#pragma omp parallel reduction(+ : seen)
    seen += 1;
    RANK_CHECK(context, omp_get_max_threads() == expected && seen == expected);
    return ITH_OK;
}

static void threads_are_shared_out(void **state)
{
    (void)state;
    ith_context *context = NULL;
    ith_context_create(NULL, &context);
    int five[] = {3, 2}, two[] = {1, 1, 1};
    assert_int_equal(ith_run_ranks(context, 2, 5, count_threads, five), ITH_OK);
    assert_int_equal(ith_run_ranks(context, 3, 2, count_threads, two), ITH_OK);
    ith_context_destroy(&context);
}

static ith_status check_context_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    RANK_CHECK(context, ith_context_rank(context) == ith_comm_rank(comm));
    return ITH_OK;
}

static void contexts_know_their_rank(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        assert_int_equal(run_quietly(ranks, check_context_rank, NULL), ITH_OK);
}

/* All ranks are threads of one process, also in sub-groups. */
static ith_status check_places(ith_context *context, ith_comm *comm, void *user)
{
    ith_comm *half = NULL;
    (void)user;
    ith_status status = ith_comm_split(comm, ith_comm_rank(comm) % 2, 0, &half);
    for (int i = 0; i < 2 && !status; i++)
        for (int rank = 0; rank < ith_comm_size(i ? half : comm); rank++) {
            ith_place place = ITH_PLACE_INIT;
            RANK_CHECK(context, ith_comm_place(i ? half : comm, rank, &place) == ITH_OK);
            RANK_CHECK(context, place.process == 0 && place.host == 0 && place.pid == getpid() && place.name[0]);
        }
    ith_comm_destroy(&half);
    return status;
}

static void ranks_know_their_places(void **state)
{
    (void)state;
    ith_place place = ITH_PLACE_INIT;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        assert_int_equal(run_quietly(ranks, check_places, NULL), ITH_OK);
    assert_int_equal(ith_comm_place(NULL, 0, &place), ITH_OK);
    assert_int_equal(place.pid, getpid());
    assert_int_equal(ith_comm_place(NULL, 1, &place), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_comm_place(NULL, -1, &place), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_comm_place(NULL, 0, NULL), ITH_ERR_ARGUMENT);
}

static ith_status never(ith_context *context, ith_comm *comm, void *user)
{
    (void)comm;
    *(bool *)user = true;
    return ith_fail(context, ITH_ERR_INTERNAL, "ran although not all ranks could");
}

/* There is no room for the stacks of all threads. Sanitizers skip this test, because they need the address space. */
static void a_thread_may_not_start(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    ith_context *context = NULL;
    ith_context_create(NULL, &context);
    struct rlimit before, tight;
    getrlimit(RLIMIT_AS, &before);
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    tight = before;
    tight.rlim_cur = (rlim_t)pages * 4096 + ((rlim_t)40 << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    bool ran = false;
    ith_status status = ith_run_ranks(context, 64, 0, never, &ran);
    setrlimit(RLIMIT_AS, &before);
    assert_int_equal(status, ITH_ERR_MEMORY);
    assert_non_null(strstr(ith_context_error(context), "of 64 could not be started"));
    assert_false(ran);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failure_ends_the_call_on_all),
        cmocka_unit_test(a_sentence_says_how_two_broadcasts_differ),
        cmocka_unit_test(the_first_failure_counts),
        cmocka_unit_test(an_abort_is_heard_as_it_was_said),
        cmocka_unit_test(collectives_of_ranks_that_stop_have_results),
        cmocka_unit_test(a_post_wakes_who_waits_for_it),
        cmocka_unit_test(who_leaves_wakes_who_waits_for_it),
        cmocka_unit_test(an_abort_outlasts_a_copy),
        cmocka_unit_test(a_wait_ends_in_time),
        cmocka_unit_test(barriers_order_memory),
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(creation_by_hand_may_fail),
        cmocka_unit_test(threads_are_shared_out),
        cmocka_unit_test(ranks_have_the_stack_that_the_engine_needs),
        cmocka_unit_test(contexts_know_their_rank),
        cmocka_unit_test(ranks_know_their_places),
        cmocka_unit_test(a_thread_may_not_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
