/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong among ranks: every rank returns, with one status and one sentence, and nothing is left behind. */
#include "base/clock.h"
#include "comm/comm.h"
#include "support/in_rank.h"
#include "support/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cmocka.h>

#define MOST_RANKS 5

static void nap(double seconds)
{
    struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

/* ---- A rank that fails ----------------------------------------------------------------------------------------- */

/* One rank fails before its operation number `at`, in one of several ways, while the others go on. */
typedef enum manner { MANNER_RETURN, MANNER_ABORT, MANNER_LEAVE, MANNER_MISMATCH, MANNER_WRONG_KIND } manner;

typedef struct mishap {
    int rank, at;
    manner manner;
    ith_status seen[MOST_RANKS];
    char sentences[MOST_RANKS][ITH_ERROR_BYTES];
} mishap;

#define OPERATIONS 6

/* Operation number n, all of them in turn; `odd` makes this rank's part unlike the others'. */
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
    default: return operate(comm, m->at + 2, memory, false); /* another operation than the others' */
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

/* ---- Time limits ----------------------------------------------------------------------------------------------- */

static ith_status dawdle(ith_context *context, ith_comm *comm, void *user)
{
    mishap *m = user;
    int rank = ith_comm_rank(comm);
    float value = 1;
    ith_comm_set_timeout(comm, rank == m->rank ? 0 : 0.05);
    if (rank == m->rank)
        nap(0.2);
    m->seen[rank] = ith_comm_allreduce(comm, &value, 1, ITH_REDUCE_SUM);
    snprintf(m->sentences[rank], ITH_ERROR_BYTES, "%s", ith_context_error(context));
    return m->seen[rank];
}

static void a_wait_ends_in_time(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        mishap m = {.rank = ranks - 1};
        ith_context *context = NULL;
        ith_context_create(NULL, &context);
        double begin = ith_clock_seconds();
        assert_int_equal(ith_run_ranks(context, ranks, 0, dawdle, &m), ITH_ERR_TIMEOUT);
        assert_true(ith_clock_seconds() - begin < 60);
        char named[32];
        snprintf(named, sizeof named, "for rank %d in", ranks - 1);
        assert_non_null(strstr(ith_context_error(context), named));
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(m.seen[r], ITH_ERR_TIMEOUT);
            assert_string_equal(m.sentences[r], ith_context_error(context));
        }
        ith_context_destroy(&context);
    }
}

/* A time limit that is far from reached, or that is none, changes nothing. */
static ith_status patient(ith_context *context, ith_comm *comm, void *user)
{
    static const double limits[] = {0, -1, 1e300, 3600, NAN};
    (void)user;
    for (int i = 0; i < 5; i++) {
        ith_comm_set_timeout(comm, limits[i]);
        if (ith_comm_rank(comm) == i % 2)
            nap(0.002);
        float value = 1;
        RANK_TRY(ith_comm_allreduce(comm, &value, 1, ITH_REDUCE_SUM));
        RANK_CHECK(context, value == 2);
    }
    return ITH_OK;
}

/* Posts one operation more than may be in flight. */
static ith_status flood(ith_context *context, ith_comm *comm, void *user)
{
    (void)context, (void)user;
    ith_request *requests[ITH_TRANSPORT_LEAST_REQUESTS + 1] = {NULL};
    ith_transfer sends[ITH_TRANSPORT_LEAST_REQUESTS + 1], receives[ITH_TRANSPORT_LEAST_REQUESTS + 1];
    char in[ITH_TRANSPORT_LEAST_REQUESTS + 1], out = 0;
    int ranks = comm->size, next = (comm->rank + 1) % ranks, before = (comm->rank + ranks - 1) % ranks;
    int posted = ITH_TRANSPORT_LEAST_REQUESTS + (comm->rank == 0);
    for (int i = 0; i < posted; i++) {
        ith_transfer send = {next, {.data = &out, .count = {1, 1}, .bytes = 1}};
        ith_transfer receive = {before, {.data = &in[i], .count = {1, 1}, .bytes = 1}};
        sends[i] = send, receives[i] = receive;
        RANK_TRY(ith_comm_post(comm, &sends[i], 1, &receives[i], 1, &requests[i]));
    }
    for (int i = 0; i < posted; i++)
        RANK_TRY(ith_comm_wait(comm, &requests[i]));
    return ith_comm_barrier(comm);
}

/* Leaves with an operation under way, to whose memory a peer may be writing. */
static ith_status flee(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    char *memory = ith_alloc(context, 1, 1 << 20, "a block");
    RANK_CHECK(context, memory);
    ith_transfer all = {1 - ith_comm_rank(comm), {.data = memory, .count = {1, 1}, .bytes = 1 << 19}};
    ith_transfer in = all;
    in.region.data = memory + (1 << 19);
    ith_status status = ITH_OK;
    if (ith_comm_rank(comm) == 0) {
        ith_request *request = NULL;
        status = ith_comm_post(comm, &all, 1, &in, 1, &request);
        ith_comm_abort(comm, ITH_ERR_INTERRUPTED);
        status = status ? status : ITH_ERR_INTERRUPTED;
    } else {
        status = ith_comm_exchange(comm, &all, 1, &in, 1);
    }
    ith_free(context, memory);
    return status;
}

static ith_status wrong_arguments(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    float value = 0;
    ith_transfer far = {comm->size, {.data = &value, .count = {1, 1}, .bytes = 4}};
    ith_transfer negative = {0, {.data = &value, .count = {-1, 1}, .bytes = 4}};
    ith_transfer null = {0, {.data = NULL, .count = {1, 1}, .bytes = 4}};
    ith_transfer huge = {0, {.data = &value, .count = {INT64_MAX / 2, 3}, .bytes = 4}};
    switch (*(int *)user) {
    case 0: return ith_comm_exchange(comm, &far, 1, NULL, 0);
    case 1: return ith_comm_exchange(comm, NULL, 0, &negative, 1);
    case 2: return ith_comm_exchange(comm, &null, 1, &null, 1);
    case 3: return ith_comm_exchange(comm, &huge, 1, &huge, 1);
    case 4: return ith_comm_exchange(comm, NULL, 1, NULL, 0);
    case 5: return ith_comm_allreduce(comm, NULL, 1, ITH_REDUCE_MAX);
    case 6: return ith_comm_allgather(comm, &value, -4, &value);
    case 7: return ith_comm_broadcast(comm, &value, 4, comm->size);
    default: return ith_comm_broadcast(comm, NULL, 4, 0);
    }
}

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

static void misuse_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(run_quietly(2, patient, NULL), ITH_OK);
    assert_int_equal(run_quietly(3, flood, NULL), ITH_ERR_ARGUMENT);
    for (int i = 0; i < 20; i++)
        assert_int_equal(run_quietly(2, flee, NULL), ITH_ERR_INTERRUPTED);
    for (int which = 0; which < 9; which++)
        for (int ranks = 1; ranks < 3; ranks++)
            assert_int_equal(run_quietly(ranks, wrong_arguments, &which), ITH_ERR_ARGUMENT);
    ith_context *context = NULL;
    ith_comm *comm = NULL;
    ith_context_create(NULL, &context);
    assert_int_equal(ith_run_ranks(NULL, 1, 0, patient, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_run_ranks(context, 0, 0, patient, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_run_ranks(context, 1, -1, patient, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_run_ranks(context, 1, 0, NULL, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_comm_create_local(NULL, 1, &comm), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_comm_create_local(&context, 0, &comm), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_comm_create_local(&context, 1, NULL), ITH_ERR_ARGUMENT);
    ith_context_destroy(&context);
}

/* ---- Groups: the end of one is the end of all ------------------------------------------------------------------ */

/* Ranks 0 and 1 are one half, 2 and 3 the other; rank 3 fails while all wait in their half or for the whole. */
static ith_status fail_in_a_half(ith_context *context, ith_comm *comm, void *user)
{
    mishap *m = user;
    int rank = ith_comm_rank(comm);
    ith_comm *half = NULL;
    ith_status status = ith_comm_split(comm, rank / 2, 0, &half);
    if (!status && rank == 3)
        status = ith_fail(context, ITH_ERR_NUMERIC, "the latents are no numbers any more");
    else if (!status)
        status = ith_comm_barrier(rank == 2 ? half : comm);
    m->seen[rank] = status;
    ith_comm_destroy(&half);
    return status;
}

static void groups_end_together(void **state)
{
    (void)state;
    mishap m = {.rank = 3};
    ith_status status = run_quietly(4, fail_in_a_half, &m);
    assert_int_equal(status, ITH_ERR_NUMERIC); /* not that rank 3 has left its half */
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(m.seen[rank], status);
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

static ith_status never(ith_context *context, ith_comm *comm, void *user)
{
    (void)comm;
    *(bool *)user = true;
    return ith_fail(context, ITH_ERR_INTERNAL, "ran although not all ranks could");
}

/* No room for the stacks of all threads. Sanitizers take the address space for themselves. */
static void a_thread_may_not_start(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    fprintf(stderr, "skipped: a sanitizer needs the address space\n");
    skip();
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    fprintf(stderr, "skipped: a sanitizer needs the address space\n");
    skip();
#endif
#endif
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
        cmocka_unit_test(a_wait_ends_in_time),
        cmocka_unit_test(misuse_is_an_error),
        cmocka_unit_test(groups_end_together),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(creation_by_hand_may_fail),
        cmocka_unit_test(threads_are_shared_out),
        cmocka_unit_test(contexts_know_their_rank),
        cmocka_unit_test(a_thread_may_not_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
