/* SPDX-License-Identifier: Apache-2.0 */
/* Transports whose functions break their promises: they wait for ever, fail on one rank, or return numbers that are no
 * status. Every rank fails in time, with a sentence. */
#include "base/clock.h"
#include "comm/local/local.h"
#include "comm/suite/suite.h"
#include "support/fixture.h"
#include "support/wrapped_ranks.h"

#include <stdlib.h>
#include <string.h>

static ith_status deaf_wait(void *state, int64_t request, double seconds, bool *done)
{
    (void)state, (void)request, (void)seconds;
    *done = false;
    return ITH_OK;
}

static ith_status odd_exchange(void *state, const ith_operation *operation)
{
    (void)state, (void)operation;
    return (ith_status)42;
}

static ith_status odd_failure(void *state, const char **sentence)
{
    (void)state;
    *sentence = "odd";
    return (ith_status)42;
}

static ith_status odd_split(void *state, const ith_subgroup *subgroup, void **out)
{
    (void)state, (void)subgroup;
    *out = NULL;
    return (ith_status)42;
}

/* Returns ITH_OK if an operation fails with the status that `user` points to. */
static ith_status fails_so(ith_context *rank_context, ith_comm *comm, void *user)
{
    ith_comm *part = NULL;
    (void)rank_context;
    ith_comm_set_timeout(comm, *(const ith_status *)user == ITH_ERR_TIMEOUT ? 0.1 : 60);
    ith_status status = ith_comm_split(comm, 0, 0, &part);
    ith_comm_destroy(&part);
    return status == *(const ith_status *)user ? ITH_OK : ITH_ERR_ARGUMENT;
}

/* If a transport's wait does not end when the group ends, the time limit ends it. If a function of a transport returns
 * a number that is no status, this is an internal error. */
static void broken_promises_are_failures(void **state)
{
    (void)state;
    ith_transport deaf = ith_local_transport, posts = ith_local_transport, splits = ith_local_transport;
    deaf.wait = deaf_wait, deaf.silence = NULL;
    posts.exchange = odd_exchange, posts.failure = odd_failure;
    splits.split = odd_split;
    struct {
        wrapper table;
        ith_status expected;
    } rows[] = {
        {{&deaf, NULL}, ITH_ERR_TIMEOUT}, {{&posts, NULL}, ITH_ERR_INTERNAL}, {{&splits, NULL}, ITH_ERR_INTERNAL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(wrapped_run(&rows[i].table, 2, fails_so, &rows[i].expected), 0);
}

static double silence_of_nobody(void *state, int64_t request, int *rank)
{
    (void)state, (void)request;
    *rank = 1000000;
    return 1e9;
}

static ith_status waits_for_others(ith_context *rank_context, ith_comm *comm, void *user)
{
    (void)user;
    ith_comm_set_timeout(comm, 0.1);
    SUITE_CHECK(rank_context, ith_comm_barrier(comm) == ITH_ERR_TIMEOUT);
    SUITE_CHECK(rank_context, strstr(ith_context_error(rank_context), " s for other ranks in a barrier"));
    return ITH_OK;
}

/* A silent rank that is not in the group has no name. */
static void the_silence_of_no_rank_names_nobody(void **state)
{
    (void)state;
    ith_transport deaf = ith_local_transport;
    wrapper table = {&deaf, NULL};
    deaf.wait = deaf_wait, deaf.silence = silence_of_nobody;
    assert_int_equal(wrapped_run(&table, 2, waits_for_others, NULL), 0);
}

/* The number of waits of a rank after which a wait of the transport that never ends counts as a failure of the test. */
#define MOST_WAITS 100000

static atomic_int waits_so_far;

static ith_status counted_wait(void *state, int64_t request, double seconds, bool *done)
{
    (void)state, (void)request, (void)seconds;
    *done = false;
    return atomic_fetch_add(&waits_so_far, 1) < MOST_WAITS ? ITH_OK : ITH_ERR_IO;
}

static ith_status stops_on_request(ith_context *rank_context, ith_comm *comm, void *user)
{
    (void)user;
    ith_comm_set_timeout(comm, 0);
    ith_context_interrupt(rank_context);
    ith_status status = ith_comm_barrier(comm);
    SUITE_CHECK(rank_context, status == ITH_ERR_INTERRUPTED && atomic_load(&waits_so_far) < MOST_WAITS);
    return ITH_OK;
}

/* A wait that does not end when the group ends also ends if it has no time limit and the rank is stopped on request. */
static void a_request_ends_a_wait_without_end(void **state)
{
    (void)state;
    ith_transport deaf = ith_local_transport;
    wrapper table = {&deaf, NULL};
    deaf.wait = counted_wait, deaf.silence = NULL;
    atomic_store(&waits_so_far, 0);
    assert_int_equal(wrapped_run(&table, 2, stops_on_request, NULL), 0);
    ith_context_end_interruption(context), ith_context_end_interruption(context);
}

static atomic_int freezes; /* the number of waits that will stand still */

static ith_status frozen_wait(void *state, int64_t request, double seconds, bool *done)
{
    if (atomic_fetch_sub(&freezes, 1) <= 0)
        return ith_local_transport.wait(state, request, seconds, done);
    *done = false;
    suite_nap(0.9);
    return ITH_OK;
}

static ith_status meets_late(ith_context *rank_context, ith_comm *comm, void *user)
{
    (void)user;
    ith_comm_set_timeout(comm, 0.4);
    if (ith_comm_rank(comm) == 0)
        suite_nap(1.05);
    SUITE_TRY(rank_context, ith_comm_barrier(comm));
    return ITH_OK;
}

/* All processes are stopped for longer than the time limit, and go on together. This time does not count as waiting. */
static void a_standstill_is_no_wait(void **state)
{
    (void)state;
    ith_transport frozen = ith_local_transport;
    wrapper table = {&frozen, NULL};
    frozen.wait = frozen_wait, frozen.silence = NULL;
    atomic_store(&freezes, 1);
    assert_int_equal(wrapped_run(&table, 2, meets_late, NULL), 0);
}

static atomic_int calls_left; /* the number of rank 1's calls until one fails */

static bool fails_now(const void *state)
{
    return ((const local_state *)state)->world_rank == 1 && atomic_fetch_sub(&calls_left, 1) == 1;
}

static ith_status failing_exchange(void *state, const ith_operation *operation)
{
    return fails_now(state) ? ITH_ERR_IO : ith_local_transport.exchange(state, operation);
}

static ith_status failing_wait(void *state, int64_t request, double seconds, bool *done)
{
    *done = false;
    return fails_now(state) ? ITH_ERR_IO : ith_local_transport.wait(state, request, seconds, done);
}

static ith_status failing_share(void *state)
{
    return fails_now(state) ? ITH_ERR_IO : ith_local_transport.share(state);
}

/* Returns ITH_OK if the failure of rank 1 reaches this rank long before the time limit. */
static ith_status hears_of_failure(ith_context *rank_context, ith_comm *comm, void *user)
{
    ith_attn_problem problem = wrapped_problem();
    ith_plan *plan = NULL;
    (void)user;
    ith_comm_set_timeout(comm, 60);
    double begin = ith_clock_seconds();
    ith_status status = ITH_OK;
    for (int i = 0; i < 3 && !status; i++)
        status = ith_comm_barrier(comm);
    if (!status)
        status = ith_plan_create(rank_context, &problem, NULL, comm, &plan);
    ith_plan_destroy(&plan);
    SUITE_CHECK(rank_context, status == ITH_ERR_IO && ith_clock_seconds() < begin + 30);
    SUITE_CHECK(rank_context, strstr(ith_context_error(rank_context),
                                     "rank 1: the transport local failed and did not say why (ITH_ERR_IO)"));
    SUITE_CHECK(rank_context, ith_comm_barrier(comm) == ITH_ERR_IO);
    return ITH_OK;
}

/* A function of the transport fails on one rank, and the transport does not end the group. Then the library ends it. */
static void a_failure_of_one_rank_ends_the_group(void **state)
{
    (void)state;
    ith_transport posts = ith_local_transport, waits = ith_local_transport, shares = ith_local_transport;
    posts.exchange = failing_exchange, waits.wait = failing_wait, shares.share = failing_share;
    wrapper rows[] = {{&posts, NULL}, {&waits, NULL}, {&shares, NULL}};
    for (int i = 0; i < 3; i++)
        for (int n = 1; n < (i < 2 ? 4 : 2); n++) {
            atomic_store(&calls_left, n);
            assert_int_equal(wrapped_run(&rows[i], 3, hears_of_failure, NULL), 0);
        }
}

/* Returns ITH_OK if an execution without q has a status and a sentence that belong together. */
static ith_status is_refused_or_fails(ith_context *rank_context, ith_comm *comm, void *user)
{
    ith_attn_problem problem = wrapped_problem();
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_plan *plan = NULL;
    (void)user;
    ith_comm_set_timeout(comm, 60);
    ith_status status = ith_plan_create(rank_context, &problem, NULL, comm, &plan);
    const bool made = !status;
    for (int i = 0; i < 3 && made && status != ITH_ERR_IO; i++)
        status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    const char *sentence = ith_context_error(rank_context);
    SUITE_CHECK(rank_context, status == ITH_ERR_ARGUMENT || status == ITH_ERR_IO);
    SUITE_CHECK(rank_context, !strstr(sentence, "q is NULL") == (status == ITH_ERR_IO));
    return ITH_OK;
}

/* The group fails while all ranks refuse a call. Each has either the refusal or the failure. */
static void a_refusal_keeps_its_sentence(void **state)
{
    (void)state;
    ith_transport posts = ith_local_transport;
    wrapper table = {&posts, NULL};
    posts.exchange = failing_exchange;
    for (int n = 1; n < 30; n++) {
        atomic_store(&calls_left, n);
        assert_int_equal(wrapped_run(&table, 3, is_refused_or_fails, NULL), 0);
    }
}

/* Tells of a failure on rank 1. */
static ith_status telling_failure(void *state, const char **sentence)
{
    const local_state *s = state;
    ith_status status = ith_local_transport.failure(state, sentence);
    if (status || s->world_rank != 1 || atomic_fetch_sub(&calls_left, 1) > 1)
        return status;
    *sentence = "the cable is broken";
    return ITH_ERR_IO;
}

static ith_status hears_of_cable(ith_context *rank_context, ith_comm *comm, void *user)
{
    ith_attn_problem problem = wrapped_problem();
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    float *memory = calloc((size_t)(4 * problem.batch * problem.q_len * problem.heads * problem.head_dim), 4);
    ith_plan *plan = NULL;
    (void)user;
    tensors.q = tensors.k = tensors.v = memory;
    tensors.o = memory + 3 * problem.batch * problem.q_len * problem.heads * problem.head_dim;
    ith_comm_set_timeout(comm, 60);
    double begin = ith_clock_seconds();
    ith_status status = ith_plan_create(rank_context, &problem, NULL, comm, &plan);
    for (int i = 0; i < 100 && !status; i++)
        status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    free(memory);
    SUITE_CHECK(rank_context, status == ITH_ERR_IO && ith_clock_seconds() < begin + 30);
    SUITE_CHECK(rank_context, strstr(ith_context_error(rank_context), "the cable is broken"));
    SUITE_CHECK(rank_context, strstr(ith_context_error(rank_context), "the group has ended"));
    return ITH_OK;
}

/* A transport tells of a failure on one rank, while its other functions still succeed. No rank takes this for a
 * cancellation. */
static void a_failure_that_is_only_told_ends_the_group(void **state)
{
    (void)state;
    ith_transport tells = ith_local_transport;
    tells.failure = telling_failure;
    wrapper table = {&tells, NULL};
    for (int n = 1; n < 40; n += 3) {
        atomic_store(&calls_left, n);
        assert_int_equal(wrapped_run(&table, 3, hears_of_cable, NULL), 0);
    }
}

static int64_t odd_noticed(void *state)
{
    (void)state;
    return ((int64_t)1 << 20) + 2; /* means: rank 2 stops execution 1 (halt.c) */
}

static ith_status computes_ones(ith_context *rank_context, ith_comm *comm, void *user)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    float zeros[32] = {0}, ones[32], o[32] = {0};
    ith_plan *plan = NULL;
    (void)user;
    for (int i = 0; i < 32; i++)
        ones[i] = 1;
    problem.heads = 1, problem.head_dim = 8, problem.q_len = problem.kv_len = 8;
    tensors.q = tensors.k = zeros, tensors.v = ones, tensors.o = o;
    SUITE_TRY(rank_context, ith_plan_create(rank_context, &problem, NULL, comm, &plan));
    ith_status status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    SUITE_TRY(rank_context, status);
    SUITE_CHECK(rank_context, !memcmp(o, ones, sizeof o));
    return ITH_OK;
}

/* A notice with a number that no rank of the group can have sent does not stop an execution. */
static void a_notice_of_no_rank_is_not_heard(void **state)
{
    (void)state;
    ith_transport odd = ith_local_transport;
    odd.noticed = odd_noticed;
    wrapper table = {&odd, NULL};
    assert_int_equal(wrapped_run(&table, 2, computes_ones, NULL), 0);
}

static ith_status no_exchange(void *state, const ith_operation *operation)
{
    (void)state, (void)operation;
    return ITH_OK;
}

static ith_status done_at_once(void *state, int64_t request, double seconds, bool *done)
{
    (void)state, (void)request, (void)seconds;
    *done = true;
    return ITH_OK;
}

static void *allocate_full(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    void *block = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    return block ? memset(block, 0xbe, bytes) : NULL;
}

static void release_full(void *user, void *block)
{
    (void)user;
    free(block);
}

/* A transport reports that an exchange is done, but delivers nothing. So the library reads random memory instead of the
 * other rank's status, and must report an error. */
static void what_never_arrived_is_a_failure(void **state)
{
    (void)state;
    ith_allocator allocator = {sizeof allocator, allocate_full, release_full, NULL};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_transport liar = ith_local_transport;
    ith_context *own = NULL, *both[2];
    ith_comm *comm = NULL, *part = NULL;
    void *states[2];
    options.allocator = &allocator;
    check(NULL, ith_context_create(&options, &own));
    both[0] = own;
    check(own, ith_context_clone(own, &both[1]));
    check(own, ith_local_connect(both, 2, states));
    liar.exchange = no_exchange, liar.wait = done_at_once;
    check(own, ith_comm_create(own, &liar, states[0], 0, 2, &comm));
    assert_int_equal(ith_comm_split(comm, 0, 0, &part), ITH_ERR_INTERNAL);
    assert_non_null(strchr(ith_context_error(own), '?')); /* stands for bytes that are no UTF-8 */
    ith_comm_destroy(&comm);
    check(both[1], ith_comm_create(both[1], &ith_local_transport, states[1], 1, 2, &comm));
    ith_comm_destroy(&comm);
    ith_context_destroy(&both[1]);
    ith_context_destroy(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_ends_a_wait_without_end),
        cmocka_unit_test(broken_promises_are_failures),
        cmocka_unit_test(the_silence_of_no_rank_names_nobody),
        cmocka_unit_test(a_standstill_is_no_wait),
        cmocka_unit_test(a_failure_of_one_rank_ends_the_group),
        cmocka_unit_test(a_notice_of_no_rank_is_not_heard),
        cmocka_unit_test(what_never_arrived_is_a_failure),
        cmocka_unit_test(a_failure_that_is_only_told_ends_the_group),
        cmocka_unit_test(a_refusal_keeps_its_sentence),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
