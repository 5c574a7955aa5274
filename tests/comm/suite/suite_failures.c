/* SPDX-License-Identifier: Apache-2.0 */
/* A failure on one rank ends the group on all ranks, in time, with its status and its sentence. Afterwards the
 * transport does not touch the memory of the ranks: where ranks are threads, AddressSanitizer would see it.
 *
 * A rank that has seen the expected failure returns ITH_OK, so the runner counts the ranks that saw something else. */
#include "suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENTENCE "the disk of a rank is lost"

static bool says(ith_context *context, const char *words)
{
    return strstr(ith_context_error(context), words) != NULL;
}

/* Puts SENTENCE into the context, for ith_comm_abort to pass on: the name of a file that does not exist. */
static void set_sentence(ith_context *context)
{
    ith_wisdom_load(context, "/nonexistent/" SENTENCE);
}

/* ---- One rank fails before one of several operations ----------------------------------------------------------- */

typedef enum manner {
    MANNER_ABORT,    /* ends the group */
    MANNER_LEAVE,    /* destroys its communicator */
    MANNER_MISMATCH, /* takes part with other sizes, or in another reduction */
    MANNER_OTHER,    /* takes part in another operation */
    MANNERS
} manner;

typedef struct mishap {
    int rank, at;
    manner manner;
} mishap;

#define OPERATIONS 6

/* Takes part in operation number n % OPERATIONS. odd: with other arguments than the other ranks. */
static ith_status operate(ith_comm *comm, int n, float *memory, bool odd)
{
    int ranks = ith_comm_size(comm);
    ith_transfer sends[SUITE_RANKS], receives[SUITE_RANKS];
    for (int peer = 0; peer < ranks; peer++) {
        sends[peer] = (ith_transfer){peer, {.data = memory, .count = {2, 3}, .stride = {16, 4}, .bytes = odd ? 3 : 4}};
        receives[peer] = suite_whole(peer, memory + 64 + 16 * peer, odd && peer == ith_comm_rank(comm) ? 18 : 24);
    }
    switch (n % OPERATIONS) {
    case 0: return ith_comm_exchange(comm, sends, ranks, receives, ranks);
    case 1: return ith_comm_allreduce(comm, memory, odd ? 2 : 3, ITH_REDUCE_SUM);
    case 2: return ith_comm_allgather(comm, memory, odd ? 7 : 8, memory + 64);
    case 3: return ith_comm_broadcast(comm, memory, odd ? 4 : 8, ranks - 1);
    case 4: return odd ? ith_comm_allreduce(comm, memory, 1, ITH_REDUCE_MAX) : ith_comm_barrier(comm);
    default: return ith_comm_allreduce(comm, memory, 3, odd ? ITH_REDUCE_SUM : ITH_REDUCE_MAX);
    }
}

/* All ranks go through the operations twice. At operation `at` the rank of the mishap fails in its manner. Each rank
 * checks the status that it gets, and that later operations give the same status. */
static ith_status suffer(ith_context *context, ith_comm *comm, void *user)
{
    const mishap *m = user;
    float memory[64 + 16 * SUITE_RANKS] = {0};
    char gone[32];
    ith_comm_set_timeout(comm, 5); /* a transport may see only after this time that a rank does not take part */
    snprintf(gone, sizeof gone, "rank %d", m->rank);
    ith_status status = ITH_OK;
    for (int n = 0; !status && n < 2 * OPERATIONS; n++) {
        bool here = ith_comm_rank(comm) == m->rank && n == m->at;
        if (here && m->manner == MANNER_LEAVE)
            return ITH_OK;
        if (here && m->manner == MANNER_ABORT) {
            set_sentence(context);
            ith_comm_abort(comm, ITH_ERR_IO);
        }
        int shift = here && m->manner == MANNER_OTHER ? 2 : 0; /* this rank takes part in another operation */
        status = operate(comm, n + shift, memory, here && m->manner == MANNER_MISMATCH);
    }
    if (m->manner == MANNER_ABORT)
        SUITE_CHECK(context, status == ITH_ERR_IO && says(context, SENTENCE));
    else if (m->manner == MANNER_LEAVE)
        SUITE_CHECK(context, status == ITH_ERR_ABORTED && says(context, gone));
    else
        SUITE_CHECK(context, status == ITH_ERR_ARGUMENT || status == ITH_ERR_TIMEOUT);
    if (m->manner != MANNER_ABORT) /* the message names the operation by the number of its exchange */
        SUITE_CHECK(context, says(context, " (exchange ") && says(context, " of group 0)"));
    SUITE_CHECK(context, ith_comm_barrier(comm) == status); /* and so does every later operation */
    return ITH_OK;
}

static int one_failure_ends_the_group(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 2; ranks <= suite_least(s->ranks, 3); ranks++)
        for (int at = 0; at < OPERATIONS; at++)
            for (int how = 0; how < MANNERS; how++) {
                mishap m = {.rank = (at + how) % ranks, .at = at, .manner = (manner)how};
                if (how == MANNER_MISMATCH && at == 3) /* all ranks notice only if the root differs */
                    m.rank = ranks - 1;
                int here = s->run(s->self, ranks, suffer, &m);
                if (here)
                    fprintf(stderr, "%d ranks, manner %d of rank %d at operation %d\n", ranks, how, m.rank, at);
                failed += here;
            }
    return failed;
}

/* ---- Wrong arguments ------------------------------------------------------------------------------------------- */

/* Makes one call whose arguments the library must refuse, so that no transport gets them. */
static ith_status wrong_call(ith_comm *comm, int which)
{
    float value = 0;
    int ranks = ith_comm_size(comm);
    ith_transfer far = suite_whole(ranks, &value, 4), below = suite_whole(-1, &value, 4);
    ith_transfer negative = {0, {.data = &value, .count = {-1, 1}, .bytes = 4}};
    ith_transfer null = suite_whole(0, NULL, 4);
    ith_transfer huge = {0, {.data = &value, .count = {INT64_MAX / 2, 3}, .bytes = 4}};
    ith_transfer alone = suite_whole(ith_comm_rank(comm), &value, 4);
    ith_request *request = NULL;
    switch (which) {
    case 0: return ith_comm_exchange(comm, &far, 1, NULL, 0);
    case 1: return ith_comm_exchange(comm, NULL, 0, &negative, 1);
    case 2: return ith_comm_exchange(comm, &null, 1, &null, 1);
    case 3: return ith_comm_exchange(comm, &huge, 1, &huge, 1);
    case 4: return ith_comm_exchange(comm, NULL, 1, NULL, 0);
    case 5: return ith_comm_exchange(comm, &below, 1, NULL, 0);
    case 6: return ith_comm_exchange(comm, &alone, -1, NULL, 0);
    case 7: return ith_comm_exchange(comm, &alone, 1, NULL, 0);
    case 8: return ith_comm_post(comm, NULL, 0, NULL, 0, NULL);
    case 9: return ith_comm_allreduce(comm, NULL, 1, ITH_REDUCE_MAX);
    case 10: return ith_comm_allreduce(comm, &value, 1, (ith_reduce)7);
    case 11: return ith_comm_allgather(comm, &value, -4, &value);
    case 12: return ith_comm_allgather(comm, &value, ranks > 1 ? INT64_MAX : -1, &value);
    case 13: return ith_comm_broadcast(comm, &value, 4, ranks);
    case 14: return ith_comm_broadcast(comm, NULL, 4, 0);
    case 15: return ith_comm_split(comm, 0, 0, NULL);
    case 16: return ith_comm_allreduce(comm, &value, INT64_MAX, ITH_REDUCE_SUM);
    case 17: return ith_comm_exchange(comm, &alone, INT64_MAX, NULL, 0);
    case 18: return ith_comm_allgather(comm, NULL, 4, &value);
    case 19: return ith_comm_allgather(comm, &value, 4, NULL);
    case 20: return ith_comm_broadcast(comm, &value, -4, 0);
    case 21: return ith_comm_allreduce(comm, &value, -1, ITH_REDUCE_SUM);
    default:
        for (int i = 0; i <= 4096; i++) { /* more requests than any transport has */
            ith_status status = ith_comm_post(comm, NULL, 0, NULL, 0, &request);
            if (status)
                return status;
        }
        return ITH_OK;
    }
}

/* The words that the sentence about each wrong call must have. If requests stay in flight, the transport may refuse the
 * call first. */
static const char *const wrong_words[] = {"sends[0].peer is ",
                                          "the sizes of receives[0].region are negative",
                                          "sends[0].region.data is NULL",
                                          "or their product does not fit",
                                          "sends is NULL, and their number is 1",
                                          "sends[0].peer is -1",
                                          "the number of sends is -1, and must be 0 or more",
                                          "the regions that the rank sends to itself",
                                          "out is NULL",
                                          "values is NULL, and count is 1",
                                          "operation is 7, and is no ith_reduce",
                                          "bytes is -4, and must be 0 or more",
                                          "bytes is ",
                                          "root is ",
                                          "data is NULL, and bytes is 4",
                                          "out is NULL",
                                          "count is 9223372036854775807, more than memory holds",
                                          "the number of sends is 9223372036854775807, more than memory holds",
                                          "mine is NULL, and bytes is 4",
                                          "all is NULL, and bytes is 4",
                                          "bytes is -4, and must be 0 or more",
                                          "count is -1, and must be 0 or more",
                                          ""};

#define WRONG_CALLS (int)(sizeof wrong_words / sizeof *wrong_words)

/* Rank 0 makes the wrong call, and the others wait for it in a barrier. */
static ith_status wrong_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    const int which = *(int *)user;
    ith_status status = ith_comm_rank(comm) == 0 ? wrong_call(comm, which) : ith_comm_barrier(comm);
    SUITE_CHECK(context, status == ITH_ERR_ARGUMENT && says(context, "rank 0") && says(context, wrong_words[which]));
    return ITH_OK;
}

static int wrong_arguments_end_the_group(const suite_subject *s)
{
    int failed = 0;
    for (int which = 0; which < WRONG_CALLS; which++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            int here = s->run(s->self, ranks, wrong_in_rank, &which);
            if (here)
                fprintf(stderr, "%d ranks, wrong call %d\n", ranks, which);
            failed += here;
        }
    return failed;
}

/* ---- Time limits ----------------------------------------------------------------------------------------------- */

/* The last rank comes later than the others' time limit. It has no limit itself, and still gets the failure. */
static ith_status silent_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int last = ith_comm_size(comm) - 1;
    double begin = suite_seconds(), limit = *(const double *)user;
    ith_comm_set_timeout(comm, ith_comm_rank(comm) == last ? 0 : limit);
    if (ith_comm_rank(comm) == last)
        suite_nap(3 * limit);
    SUITE_CHECK(context, ith_comm_barrier(comm) == ITH_ERR_TIMEOUT);
    SUITE_CHECK(context, says(context, "ith_comm_set_timeout") && suite_seconds() - begin < 30);
    return ITH_OK;
}

/* Rank 0 comes later than the time limit, but gives signs of life: nothing fails. */
static ith_status lively_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    double limit = *(const double *)user;
    ith_comm_set_timeout(comm, limit);
    for (int i = 0; i < 60 && ith_comm_rank(comm) == 0; i++) {
        suite_nap(limit / 50);
        ith_comm_alive(comm);
    }
    SUITE_TRY(context, ith_comm_barrier(comm));
    return ITH_OK;
}

/* A time limit that is far from reached, or no limit, changes nothing. */
static ith_status patient_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    static const double limits[] = {0, -1, 1e300, 3600};
    (void)user;
    for (int i = 0; i < 4; i++) {
        ith_comm_set_timeout(comm, limits[i]);
        if (ith_comm_rank(comm) == i % 2)
            suite_nap(0.002);
        SUITE_TRY(context, ith_comm_barrier(comm));
    }
    return ITH_OK;
}

/* Runs fn with a time in seconds, and again with longer times if it fails, because a busy machine may hold up ranks. */
static int run_patiently(const suite_subject *s, int ranks, ith_rank_fn fn, double seconds)
{
    int failed = s->run(s->self, ranks, fn, &seconds);
    for (int n = 0; n < 3 && failed; n++) {
        seconds *= 4;
        failed = s->run(s->self, ranks, fn, &seconds);
    }
    return failed;
}

static int a_wait_ends_in_time(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 2; ranks <= suite_least(s->ranks, 3); ranks++)
        failed += run_patiently(s, ranks, silent_in_rank, 0.1);
    failed += s->run(s->self, 2, patient_in_rank, NULL);
    return failed + (s->alive ? run_patiently(s, suite_least(s->ranks, 3), lively_in_rank, 1) : 0);
}

/* ---- Abort ----------------------------------------------------------------------------------------------------- */

typedef struct ending {
    ith_comm *comm;
    double delay; /* seconds */
} ending;

static void *abort_soon(void *argument)
{
    const ending *e = argument;
    suite_nap(e->delay);
    ith_comm_abort(e->comm, ITH_ERR_NUMERIC);
    return NULL;
}

/* Rank 0 ends the group from another thread, while all ranks wait for the last rank, which computes. */
static ith_status aborted_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    ending e = {comm, *(const double *)user};
    pthread_t thread;
    int rank = ith_comm_rank(comm);
    if (rank == 0)
        SUITE_CHECK(context, !pthread_create(&thread, NULL, abort_soon, &e));
    if (rank == ith_comm_size(comm) - 1)
        suite_nap(3 * e.delay);
    double begin = suite_seconds();
    ith_status status = ith_comm_barrier(comm);
    double seconds = suite_seconds() - begin;
    if (rank == 0)
        pthread_join(thread, NULL);
    SUITE_CHECK(context, status == ITH_ERR_NUMERIC && says(context, "rank 0") && says(context, "ended the group") &&
                             seconds < 10);
    return ITH_OK;
}

static int abort_reaches_all(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 2; ranks <= suite_least(s->ranks, 4); ranks++)
        failed += run_patiently(s, ranks, aborted_in_rank, 0.05);
    return failed;
}

/* Both sides have two regions and the same number of bytes, but the sizes of the regions differ. */
static ith_status disagree_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    const int64_t unit = *(const int64_t *)user, first = ith_comm_rank(comm) ? 3 : 1;
    char *data = malloc((size_t)(4 * unit));
    SUITE_CHECK(context, data);
    memset(data, 0, (size_t)(4 * unit));
    const ith_transfer list[2] = {suite_whole(1 - ith_comm_rank(comm), data, first * unit),
                                  suite_whole(1 - ith_comm_rank(comm), data + first * unit, (4 - first) * unit)};
    const bool sends = ith_comm_rank(comm) == 0;
    ith_status status = ith_comm_exchange(comm, list, sends ? 2 : 0, list, sends ? 0 : 2);
    if (!status) /* the sender may be done before the receiver sees the mistake */
        status = ith_comm_barrier(comm);
    SUITE_CHECK(context, status == ITH_ERR_ARGUMENT && says(context, "disagree"));
    free(data);
    return ITH_OK;
}

static int regions_of_other_sizes_are_refused(const suite_subject *s)
{
    const int64_t units[] = {10, 5000};
    return s->run(s->self, 2, disagree_in_rank, (void *)&units[0]) +
           s->run(s->self, 2, disagree_in_rank, (void *)&units[1]);
}

/* Whether all bytes are `value`. */
static bool is_all(const char *memory, int64_t bytes, char value)
{
    return memory[0] == value && !memcmp(memory, memory + 1, (size_t)bytes - 1);
}

/* Ends the group while a large region may be under way, and uses the memory of the region for something else at
 * once. */
static ith_status flee_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int64_t half = (int64_t)1 << 24;
    char *memory = calloc(2, (size_t)half);
    SUITE_CHECK(context, memory);
    ith_transfer out = suite_whole(1 - ith_comm_rank(comm), memory, half);
    ith_transfer in = suite_whole(out.peer, memory + half, half);
    ith_request *request = NULL;
    ith_status status = ith_comm_post(comm, &out, 1, &in, 1, &request);
    if (ith_comm_rank(comm) == 0) {
        suite_nap(*(double *)user);
        ith_comm_abort(comm, ITH_ERR_INTERRUPTED);
        memset(memory + half, 1, (size_t)half);
        suite_nap(0.02);
        SUITE_CHECK(context, is_all(memory + half, half, 1));
        free(memory);
        SUITE_CHECK(context, ith_comm_wait(comm, &request) == ITH_ERR_INTERRUPTED || !status);
        return ITH_OK;
    }
    status = status ? status : ith_comm_wait(comm, &request);
    free(memory);
    SUITE_CHECK(context, !status || status == ITH_ERR_INTERRUPTED); /* the exchange may have ended before the abort */
    return ITH_OK;
}

static int memory_is_left_alone_after_an_abort(const suite_subject *s)
{
    int failed = 0;
    for (int i = 0; i < 12; i++) {
        double seconds = i * 4e-4;
        failed += s->run(s->self, 2, flee_in_rank, &seconds);
    }
    return failed;
}

/* Ranks 0 and 1 are one half of the group, 2 and 3 the other. Rank 3 fails while rank 2 waits in its half, and ranks 0
 * and 1 in the whole group. */
static ith_status half_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    ith_comm *half = NULL;
    int rank = ith_comm_rank(comm);
    ith_status status = ith_comm_split(comm, rank / 2, 0, &half);
    if (rank == 3) {
        SUITE_TRY(context, status);
        set_sentence(context);
        ith_comm_abort(half, ITH_ERR_IO);
    }
    if (!status) /* otherwise rank 3 has ended the group while this rank was in the split */
        status = ith_comm_barrier(rank == 2 ? half : comm);
    SUITE_CHECK(context, status == ITH_ERR_IO && says(context, SENTENCE));
    SUITE_CHECK(context, ith_comm_barrier(half ? half : comm) == ITH_ERR_IO);
    ith_comm_destroy(&half);
    return ITH_OK;
}

static int groups_end_together(const suite_subject *s)
{
    return s->ranks < 4 ? 0 : s->run(s->self, 4, half_in_rank, NULL);
}

/* Rank 0 leaves the group, with a request in flight if under_way is set. Rank 1 then waits for it in a barrier. */
static ith_status leave(ith_context *context, ith_comm *comm, bool under_way, double seconds)
{
    char data = 0;
    ith_transfer transfer = suite_whole(1, &data, 1);
    ith_request *request = NULL;
    if (ith_comm_rank(comm) == 0) {
        if (under_way)
            SUITE_TRY(context, ith_comm_post(comm, NULL, 0, &transfer, 1, &request));
        return ITH_OK;
    }
    suite_nap(seconds);
    SUITE_CHECK(context, ith_comm_barrier(comm) == ITH_ERR_ABORTED && says(context, "rank 0"));
    SUITE_CHECK(context, says(context, " left "));
    return ITH_OK;
}

static ith_status leave_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    return leave(context, comm, false, *(const double *)user);
}

static ith_status leave_under_way_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    return leave(context, comm, true, *(const double *)user);
}

static int who_leaves_is_missed(const suite_subject *s)
{
    return run_patiently(s, 2, leave_in_rank, 0.05) + run_patiently(s, 2, leave_under_way_in_rank, 0.05);
}

const suite_test suite_failures[] = {
    {"one_failure_ends_the_group", one_failure_ends_the_group},
    {"wrong_arguments_end_the_group", wrong_arguments_end_the_group},
    {"regions_of_other_sizes_are_refused", regions_of_other_sizes_are_refused},
    {"a_wait_ends_in_time", a_wait_ends_in_time},
    {"abort_reaches_all", abort_reaches_all},
    {"memory_is_left_alone_after_an_abort", memory_is_left_alone_after_an_abort},
    {"groups_end_together", groups_end_together},
    {"who_leaves_is_missed", who_leaves_is_missed},
    {NULL, NULL},
};
