/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of transports on threads, with three tables: the library's own; a table with the required functions alone,
 * so that the library does all the rest; and a table that checks the library's calls against the contract of
 * transports. Then tables that must be refused. */
#include "comm/local/local.h"
#include "comm/suite/suite.h"
#include "support/fixture.h"
#include "support/random.h"
#include "support/refused.h"
#include "support/sanitizers.h"
#include "support/wrapped_ranks.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The local transport as programs use it. */
static int run_local(void *self, int ranks, ith_rank_fn fn, void *user)
{
    (void)self;
    ith_status status = ith_run_ranks(context, ranks, ranks, fn, user);
    if (status)
        print_error("%s\n", ith_context_error(context));
    return status != ITH_OK;
}

static void local_passes(void **state)
{
    (void)state;
    const suite_subject subject = {
        .name = "local", .ranks = SUITE_RANKS, .alive = true, .notifies = true, .run = run_local};
    assert_int_equal(suite_run(&subject, getenv("SUITE")), 0);
}

/* Rank 0 sends a region, or wants one, for which rank 1 has no partner in the same exchange. */
static ith_status lone_in_rank(ith_context *own, ith_comm *comm, void *user)
{
    const bool sends = *(const bool *)user;
    char data[16] = {0};
    const ith_transfer one = suite_whole(1, data, sizeof data);
    const int64_t count = ith_comm_rank(comm) == 0;
    ith_status status = ith_comm_exchange(comm, &one, sends ? count : 0, &one, sends ? 0 : count);
    if (!status)
        status = ith_comm_barrier(comm);
    SUITE_CHECK(own, status == ITH_ERR_ARGUMENT);
    SUITE_CHECK(own,
                strstr(ith_context_error(own), sends ? "every send needs a receive" : "every receive needs a send"));
    return ITH_OK;
}

static void transfers_without_a_partner_are_refused(void **state)
{
    (void)state;
    for (int sends = 0; sends < 2; sends++) {
        bool way = sends;
        assert_int_equal(run_local(NULL, 2, lone_in_rank, &way), 0);
    }
}

/* After a failure a rank makes no sub-group: the others may not make theirs. */
static void a_group_that_has_ended_is_not_split(void **state)
{
    (void)state;
    enum { RANKS = 2 };
    ith_context *contexts[RANKS];
    void *states[RANKS], *part = states;
    const char *sentence = NULL;
    ith_subgroup subgroup = ITH_SUBGROUP_INIT;
    subgroup.number = 1, subgroup.size = 1, subgroup.members = &(int){1};
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(ith_context_create(NULL, &contexts[i]), ITH_OK);
    assert_int_equal(ith_local_connect(contexts, RANKS, states), ITH_OK);
    ith_local_transport.abort(states[0], ITH_ERR_IO, "the disk is full");
    assert_int_equal(ith_local_transport.split(states[1], &subgroup, &part), ITH_ERR_IO);
    assert_null(part);
    assert_int_equal(ith_local_transport.failure(states[1], &sentence), ITH_ERR_IO);
    assert_string_equal(sentence, "the disk is full");
    for (int i = 0; i < RANKS; i++)
        ith_local_leave(states[i]);
    for (int i = 0; i < RANKS; i++)
        ith_local_close(states[i]);
    for (int i = 0; i < RANKS; i++)
        ith_context_destroy(&contexts[i]);
}

/* ---- The required functions alone ------------------------------------------------------------------------------ */

/* A table without `leave` takes the rank out of the group in `close`. */
static void close_and_leave(void *state)
{
    const local_state *self = state;
    if (self->group->number == 0)
        ith_local_leave(state);
    ith_local_close(state);
}

static void a_table_of_required_functions_passes(void **state)
{
    (void)state;
    ith_transport table = ITH_TRANSPORT_INIT;
    table.name = "minimal", table.requests = ith_local_transport.requests;
    table.exchange = ith_local_transport.exchange, table.wait = ith_local_transport.wait;
    table.failure = ith_local_transport.failure, table.split = ith_local_transport.split;
    table.abort = ith_local_transport.abort, table.close = close_and_leave;
    wrapper minimal = {&table, NULL};
    const suite_subject subject = {.name = "minimal", .ranks = SUITE_RANKS, .run = wrapped_run, .self = &minimal};
    assert_int_equal(suite_run(&subject, getenv("SUITE")), 0);
}

/* ---- The library's half of the contract ------------------------------------------------------------------------ */

/* A state that remembers which calls the library has made. The state of the whole group counts for its sub-groups
 * too. */
typedef struct strict_state {
    void *local;
    struct strict_state *whole;
    int open_parts; /* the number of states of sub-groups; kept in the whole group's state */
    bool in_flight[LOCAL_REQUESTS];
    int under_way; /* the number of requests of all groups; kept in the whole group's state */
    bool left, sharing, shared;
    uint64_t random;
    atomic_int inside; /* running calls that only one thread at a time may make; kept in the whole group's state */
} strict_state;

static atomic_int breaches;
static atomic_int waits; /* calls of strict_wait */

/* Counts a breach of the contract. Called by every rank's threads, so it may not end the test itself. */
static void demand(bool kept, const char *what)
{
    if (!kept && atomic_fetch_add(&breaches, 1) < 10)
        print_error("the library: %s\n", what);
}

/* Called at the beginning of functions that only one thread at a time may call, and nobody after `leave`. */
static void enter(strict_state *s)
{
    demand(atomic_fetch_add(&s->whole->inside, 1) == 0, "two threads in one rank's calls");
    demand(!s->whole->left, "a call after leave");
}

static void exit_call(strict_state *s)
{
    atomic_fetch_sub(&s->whole->inside, 1);
}

static bool over(const strict_state *s)
{
    const char *sentence;
    return ith_local_transport.failure(s->local, &sentence) != ITH_OK;
}

static void *strict_wrap(void *local)
{
    strict_state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->local = local;
    s->whole = s;
    return s;
}

static ith_status strict_exchange(void *state, const ith_operation *operation)
{
    strict_state *s = state;
    enter(s);
    bool known = operation->request >= 0 && operation->request < LOCAL_REQUESTS;
    demand(known && !s->in_flight[operation->request], "a request is posted that is in flight, or is none");
    demand(operation->struct_size == sizeof *operation && operation->what, "an operation has no size or name");
    ith_status status = ith_local_transport.exchange(s->local, operation);
    if (known && !status) {
        s->in_flight[operation->request] = true;
        s->whole->under_way++;
    }
    exit_call(s);
    return status;
}

static ith_status strict_wait(void *state, int64_t request, double seconds, bool *done)
{
    strict_state *s = state;
    enter(s);
    atomic_fetch_add(&waits, 1);
    demand(s->in_flight[request], "a request is waited for that is not in flight");
    demand(seconds >= 0 && seconds < 1, "a wait is longer than a second");
    *done = false;
    ith_status status = ITH_OK;
    if (request % 2 == 0 || seconds == 0 ||
        random_below(&s->random, 4)) /* in some calls: a wait may return before its time is over */
        status = ith_local_transport.wait(s->local, request, seconds, done);
    if (*done || status) {
        s->in_flight[request] = false;
        s->whole->under_way--;
    }
    exit_call(s);
    return status;
}

static ith_status strict_failure(void *state, const char **sentence)
{
    return ith_local_transport.failure(((strict_state *)state)->local, sentence);
}

static ith_status strict_split(void *state, const ith_subgroup *subgroup, void **out)
{
    strict_state *s = state;
    enter(s);
    demand(s->whole == s, "split is called with a sub-group's state");
    demand(subgroup->number > 0 && subgroup->members && subgroup->members[subgroup->rank] >= 0, "a sub-group is none");
    void *local = NULL;
    ith_status status = ith_local_transport.split(s->local, subgroup, &local);
    if (!status) {
        strict_state *part = strict_wrap(local);
        part->whole = s;
        s->open_parts++;
        *out = part;
    }
    exit_call(s);
    return status;
}

static void strict_abort(void *state, ith_status status, const char *sentence)
{
    const strict_state *s = state;
    demand(status < 0 && sentence && sentence[0], "abort without a status or a sentence");
    ith_local_transport.abort(s->local, status, sentence);
}

static void strict_leave(void *state)
{
    strict_state *s = state;
    enter(s);
    demand(s->whole == s, "leave is called with a sub-group's state");
    demand(s->under_way == 0 || over(s), "the rank leaves with requests in flight");
    demand(!s->sharing, "the rank leaves while it shares");
    ith_local_transport.leave(s->local);
    s->left = true;
    exit_call(s);
}

static void strict_close(void *state)
{
    strict_state *s = state;
    if (s->whole == s)
        demand(s->left && s->open_parts == 0, "closed before it is left, or before its sub-groups");
    else
        s->whole->open_parts--;
    ith_local_transport.close(s->local);
    free(s);
}

static void strict_alive(void *state)
{
    ith_local_transport.alive(((strict_state *)state)->local);
}

static double strict_silence(void *state, int64_t request, int *rank)
{
    const strict_state *s = state;
    demand(s->in_flight[request], "the silence of a request that is not in flight is asked for");
    return ith_local_transport.silence(s->local, request, rank);
}

static void strict_notify(void *state, int64_t number)
{
    ith_local_transport.notify(((strict_state *)state)->local, number);
}

static int64_t strict_noticed(void *state)
{
    return ith_local_transport.noticed(((strict_state *)state)->local);
}

static ith_status strict_share(void *state)
{
    strict_state *s = state;
    enter(s);
    demand(!s->sharing, "share is called twice");
    ith_status status = ith_local_transport.share(s->local);
    s->sharing = !status;
    exit_call(s);
    return status;
}

static void strict_unshare(void *state)
{
    strict_state *s = state;
    enter(s);
    demand(s->sharing, "unshare without a share that succeeded");
    s->sharing = false;
    ith_local_transport.unshare(s->local);
    exit_call(s);
}

static void strict_drain(void *state)
{
    strict_state *s = state;
    enter(s);
    demand(!s->sharing && over(s), "drain while the rank shares, or while the group works");
    ith_local_transport.drain(s->local);
    exit_call(s);
}

static const ith_transport strict_table = {
    .struct_size = sizeof(ith_transport),
    .name = "strict",
    .requests = LOCAL_REQUESTS,
    .exchange = strict_exchange,
    .wait = strict_wait,
    .failure = strict_failure,
    .split = strict_split,
    .abort = strict_abort,
    .close = strict_close,
    .leave = strict_leave,
    .alive = strict_alive,
    .silence = strict_silence,
    .notify = strict_notify,
    .noticed = strict_noticed,
    .share = strict_share,
    .unshare = strict_unshare,
    .drain = strict_drain,
};

static void the_library_keeps_the_contract(void **state)
{
    (void)state;
    if (SANITIZES_THREADS) /* local_passes runs the same code, without the atomic counters that would hide a race */
        skip();
    wrapper strict = {&strict_table, strict_wrap};
    const suite_subject subject = {
        .name = "strict", .ranks = SUITE_RANKS, .alive = true, .notifies = true, .run = wrapped_run, .self = &strict};
    assert_int_equal(suite_run(&subject, getenv("SUITE")), 0);
    assert_int_equal(atomic_load(&breaches), 0);
}

/* After a rank has left the whole group, every call on its sub-group is refused, and none reaches the transport. */
static void a_part_ends_with_the_whole(void **state)
{
    (void)state;
    wrapper strict = {&strict_table, strict_wrap};
    const ith_attn_problem problem = wrapped_problem();
    ith_context *own = NULL;
    ith_comm *comm, *part = NULL, *second = NULL;
    ith_request *request = NULL, *gone;
    ith_plan *plan = NULL;
    char byte = 0;
    ith_transfer far = suite_whole(7, &byte, 1);
    bool done = true;
    wrapped_connect(&strict, 1, &own, &comm);
    check(own, ith_comm_split(comm, 0, 0, &part));
    check(own, ith_comm_post(part, NULL, 0, NULL, 0, &request));
    check(own, ith_comm_post(part, NULL, 0, NULL, 0, &gone));
    ith_comm_destroy(&comm);
    REFUSED(own, "has left", ith_comm_test(part, &request, &done));
    assert_true(!request && !done);
    REFUSED(own, "has left", ith_comm_wait(part, &gone));
    REFUSED(own, "has left", ith_comm_barrier(part));
    REFUSED(own, "has left", ith_comm_exchange(part, &far, 1, NULL, 0));
    REFUSED(own, "has left", ith_comm_split(part, 0, 0, &second));
    REFUSED(own, "has left", ith_comm_split(part, 0, 0, NULL));
    REFUSED(own, "destroyed", ith_plan_create(own, &problem, NULL, part, &plan));
    ith_comm_alive(part);
    ith_comm_abort(part, ITH_ERR_IO);
    ith_comm_destroy(&part);
    ith_context_destroy(&own);
    assert_int_equal(atomic_load(&breaches), 0);
}

/* ---- One call at a time ---------------------------------------------------------------------------------------- */

static void *split_in_two(void *argument)
{
    rank_thread *self = argument;
    self->failed = ith_comm_split(self->comm, 0, 0, &self->comm) != ITH_OK;
    return NULL;
}

/* Gives each of two ranks the communicator in which it will wait at a barrier: the whole group's, or a sub-group's. */
static void split_both(ith_context **contexts, ith_comm **comms, rank_thread *all, bool of_part)
{
    for (int i = 0; i < 2; i++) {
        all[i] = (rank_thread){.context = contexts[i], .comm = comms[i]};
        if (of_part)
            pthread_create(&all[i].thread, NULL, split_in_two, &all[i]);
    }
    for (int i = 0; of_part && i < 2; i++) {
        pthread_join(all[i].thread, NULL);
        assert_false(all[i].failed);
    }
}

static void *wait_at_barrier(void *argument)
{
    rank_thread *self = argument;
    self->failed = ith_comm_barrier(self->comm) != ITH_OK;
    return NULL;
}

/* Rank 0 waits at a barrier of the whole group or of a sub-group. Meanwhile another thread makes a plan, which is
 * refused on this rank alone, or destroys the communicators, which ends the barrier first. */
static void interrupt_barrier(bool of_part, bool destroy)
{
    wrapper strict = {&strict_table, strict_wrap};
    const ith_attn_problem problem = wrapped_problem();
    rank_thread all[2] = {{0}};
    ith_context *contexts[2] = {NULL}, *third = NULL;
    ith_comm *comms[2];
    ith_plan *plan = NULL;
    wrapped_connect(&strict, 2, contexts, comms);
    check(context, ith_context_clone(context, &third));
    split_both(contexts, comms, all, of_part);
    const int before = atomic_load(&waits);
    pthread_create(&all[0].thread, NULL, wait_at_barrier, &all[0]);
    while (atomic_load(&waits) == before)
        suite_nap(0.001);
    REFUSED(third, "another call", ith_plan_create(third, &problem, NULL, comms[0], &plan));
    if (destroy)
        ith_comm_destroy(&comms[0]);
    pthread_create(&all[1].thread, NULL, wait_at_barrier, &all[1]);
    for (int i = 0; i < 2; i++) {
        pthread_join(all[i].thread, NULL);
        assert_int_equal(all[i].failed, destroy);
    }
    for (int i = 0; i < 2; i++) {
        if (of_part)
            ith_comm_destroy(&all[i].comm);
        ith_comm_destroy(&comms[i]);
        ith_context_destroy(&contexts[i]);
    }
    ith_context_destroy(&third);
    assert_int_equal(memory_of(context).current_bytes, 0);
    assert_int_equal(atomic_load(&breaches), 0);
}

static void a_call_ends_before_its_rank_leaves(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        interrupt_barrier(i % 2, i / 2);
}

/* Waiting for a request that has ended, or that belongs to another communicator, is refused. */
static void a_request_is_waited_for_once(void **state)
{
    (void)state;
    wrapper strict = {&strict_table, strict_wrap};
    ith_context *own = NULL;
    ith_comm *comm, *part = NULL;
    ith_request *request = NULL, *copy;
    bool done;
    wrapped_connect(&strict, 1, &own, &comm);
    check(own, ith_comm_split(comm, 0, 0, &part));
    check(own, ith_comm_post(comm, NULL, 0, NULL, 0, &request));
    copy = request;
    REFUSED(own, "not in flight on this communicator", ith_comm_wait(part, &request));
    REFUSED(own, "not in flight on this communicator", ith_comm_test(part, &request, &done));
    check(own, ith_comm_wait(comm, &request));
    done = false;
    check(own, ith_comm_test(comm, &request, &done));
    assert_true(done); /* so that a loop until `done` ends */
    REFUSED(own, "not in flight on this communicator", ith_comm_wait(comm, &copy));
    REFUSED(own, "not in flight on this communicator", ith_comm_test(comm, &copy, &done));
    check(own, ith_comm_barrier(comm));
    ith_comm_destroy(&part);
    ith_comm_destroy(&comm);
    ith_context_destroy(&own);
    assert_int_equal(atomic_load(&breaches), 0);
}

/* Posts one operation more than the transport has requests, without a wait. */
static void requests_are_limited(void **state)
{
    (void)state;
    wrapper strict = {&strict_table, strict_wrap};
    ith_context *own = NULL;
    ith_comm *comm;
    ith_request *request = NULL;
    wrapped_connect(&strict, 1, &own, &comm);
    check(own, ith_comm_barrier(comm));
    for (int i = 0; i < LOCAL_REQUESTS; i++)
        check(own, ith_comm_post(comm, NULL, 0, NULL, 0, &request));
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "exchange 1 is still in flight, and the transport has %d requests (ith_transport.requests): wait for it",
             LOCAL_REQUESTS);
    REFUSED(own, sentence, ith_comm_post(comm, NULL, 0, NULL, 0, &request));
    ith_comm_destroy(&comm);
    ith_context_destroy(&own);
    assert_int_equal(atomic_load(&breaches), 0);
}

/* ---- Bytes of messages ----------------------------------------------------------------------------------------- */

enum { NOTED_BYTES = 64 };

/* The bytes that rank 0 shows the other ranks when a group is split. */
typedef struct split_note {
    char bytes[NOTED_BYTES];
    int64_t count;
} split_note;

static split_note noted;

/* The exchange of the local transport, which also notes the last all-gather of rank 0. */
static ith_status noting_exchange(void *state, const ith_operation *operation)
{
    const ith_region *sent = &operation->sends[0].region;
    if (((const local_state *)state)->rank == 0 && !strcmp(operation->what, "an all-gather") &&
        sent->bytes <= NOTED_BYTES) {
        memcpy(noted.bytes, sent->data, (size_t)sent->bytes);
        noted.count = sent->bytes;
    }
    return ith_local_transport.exchange(state, operation);
}

/* Leaves a byte in the memory of the stack that the next call uses. */
static __attribute__((noinline)) void fill_stack(int byte)
{
    volatile char memory[16384];
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (char)byte;
}

static ith_status split_on_filled_stack(ith_context *own, ith_comm *comm, void *byte)
{
    ith_comm *part = NULL;
    (void)own;
    fill_stack(*(const int *)byte);
    ith_status status = ith_comm_split(comm, 0, 0, &part);
    ith_comm_destroy(&part);
    return status;
}

/* A split sends the same bytes whatever the stack held before. */
static void a_split_sends_nothing_of_the_stack(void **state)
{
    (void)state;
    ith_transport table = ith_local_transport;
    table.exchange = noting_exchange;
    wrapper noting = {&table, NULL};
    int byte = 0x5a;
    assert_int_equal(wrapped_run(&noting, 2, split_on_filled_stack, &byte), 0);
    const split_note first = noted;
    byte = 0xa5;
    assert_int_equal(wrapped_run(&noting, 2, split_on_filled_stack, &byte), 0);
    assert_true(noted.count > 0);
    assert_int_equal(noted.count, first.count);
    assert_memory_equal(noted.bytes, first.bytes, (size_t)first.count);
}

/* ---- Tables and arguments that are refused --------------------------------------------------------------------- */

/* The address of function number i of a table, and its name. */
static void (**function_at(ith_transport *t, int i, const char **name))(void)
{
#define FUNCTION(field)                                                                                                \
    {                                                                                                                  \
#field, (void (**)(void))(void *)&t->field                                                                     \
    }
    const struct {
        const char *name;
        void (**at)(void);
    } all[] = {FUNCTION(exchange), FUNCTION(wait),    FUNCTION(failure), FUNCTION(split),
               FUNCTION(abort),    FUNCTION(close),   FUNCTION(notify),  FUNCTION(noticed),
               FUNCTION(share),    FUNCTION(unshare), FUNCTION(drain)};
#undef FUNCTION
    if (i >= (int)(sizeof all / sizeof *all))
        return NULL;
    *name = all[i].name;
    return all[i].at;
}

/* Tables without a required function, with one function of a pair, or with numbers out of range are refused. */
static void wrong_tables_are_refused(void **state)
{
    (void)state;
    ith_transport t = strict_table;
    int nothing = 0;
    ith_comm *comm = (ith_comm *)&nothing;
    const char *name;
    for (int i = 0; function_at(&t, i, &name); i++) {
        *function_at(&t, i, &name) = NULL;
        REFUSED(context, name, ith_comm_create(context, &t, &nothing, 0, 1, &comm));
        assert_null(comm);
        t = strict_table;
    }
    t.name = NULL;
    REFUSED(context, "name", ith_comm_create(context, &t, &nothing, 0, 1, &comm));
    t = strict_table;
    const int64_t requests[] = {INT64_MIN, -1, 0, ITH_TRANSPORT_LEAST_REQUESTS - 1, 4097, INT64_MAX};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        t.requests = requests[i];
        REFUSED(context, "requests", ith_comm_create(context, &t, &nothing, 0, 1, &comm));
    }
    t = strict_table;
    REFUSED_SIZES(context, t, "ith_transport", ith_comm_create(context, &t, &nothing, 0, 1, &comm));
    struct {
        ith_transport table;
        int64_t later;
    } longer = {strict_table, 1};
    longer.table.struct_size = sizeof longer;
    REFUSED(context, "later", ith_comm_create(context, &longer.table, &nothing, 0, 1, &comm));
    const int sizes[][2] = {{0, 0}, {0, -1}, {-1, 1}, {1, 1}, {7, 3}, {0, INT_MAX}, {INT_MIN, 2}, {0, 1048577}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        REFUSED(context, "size", ith_comm_create(context, &t, &nothing, sizes[i][0], sizes[i][1], &comm));
    REFUSED(NULL, "context is NULL", ith_comm_create(NULL, &t, &nothing, 0, 1, &comm));
    REFUSED(context, "ith_transport is NULL", ith_comm_create(context, NULL, &nothing, 0, 1, &comm));
    REFUSED(context, "out is NULL", ith_comm_create(context, &t, &nothing, 0, 1, NULL));
}

/* A table that was compiled against an earlier header lacks the functions at its end. */
static void a_shorter_table_is_taken(void **state)
{
    (void)state;
    ith_transport table = ith_local_transport;
    table.struct_size = offsetof(ith_transport, share);
    wrapper shorter = {&table, NULL};
    const suite_subject subject = {
        .name = "shorter", .ranks = 2, .alive = true, .notifies = true, .run = wrapped_run, .self = &shorter};
    assert_int_equal(suite_run(&subject, "refusal"), 0);
}

/* ---- One rank --------------------------------------------------------------------------------------------------- */

/* With NULL as the communicator every public operation works as on one rank, and refuses the same arguments. */
static void one_rank_needs_no_communicator(void **state)
{
    (void)state;
    char from[6] = "abcde", to[12] = "-----------";
    ith_transfer send = suite_whole(0, from, 4);
    ith_transfer receive = {0, {.data = to, .count = {2, 2}, .stride = {5, 2}, .bytes = 1}};
    ith_request *request = NULL;
    bool done = true;
    float value = 3;
    check(NULL, ith_comm_exchange(NULL, &send, 1, &receive, 1));
    assert_string_equal(to, "a-b--c-d---");
    REFUSED(NULL, "receives from itself", ith_comm_exchange(NULL, &send, 1, &receive, 0));
    REFUSED(NULL, "out is NULL", ith_comm_post(NULL, &send, 1, &receive, 1, NULL));
    receive.region.bytes = 2;
    REFUSED(NULL, "receives from itself", ith_comm_exchange(NULL, &send, 1, &receive, 1));
    send.peer = 1;
    REFUSED(NULL, "sends[0].peer is 1", ith_comm_exchange(NULL, &send, 1, NULL, 0));
    request = (ith_request *)(void *)from;
    check(NULL, ith_comm_post(NULL, NULL, 0, NULL, 0, &request));
    assert_null(request);
    request = (ith_request *)(void *)from;
    REFUSED(NULL, "sends[0].peer is 1", ith_comm_post(NULL, &send, 1, NULL, 0, &request));
    assert_null(request);
    done = false;
    check(NULL, ith_comm_test(NULL, &request, &done));
    assert_true(done);
    check(NULL, ith_comm_wait(NULL, &request));
    check(NULL, ith_comm_wait(NULL, NULL));
    REFUSED(NULL, "NULL", ith_comm_test(NULL, NULL, &done));
    REFUSED(NULL, "NULL", ith_comm_test(NULL, &request, NULL));
    check(NULL, ith_comm_allreduce(NULL, &value, 1, ITH_REDUCE_SUM));
    assert_true(value == 3);
    REFUSED(NULL, "values is NULL", ith_comm_allreduce(NULL, NULL, 1, ITH_REDUCE_SUM));
    REFUSED(NULL, "operation is -1", ith_comm_allreduce(NULL, &value, 1, (ith_reduce)-1));
    check(NULL, ith_comm_allgather(NULL, from, 2, to));
    assert_memory_equal(to, "ab", 2);
    REFUSED(NULL, "bytes is -1", ith_comm_allgather(NULL, from, -1, to));
    check(NULL, ith_comm_broadcast(NULL, from, 2, 0));
    REFUSED(NULL, "root", ith_comm_broadcast(NULL, from, 2, 1));
    check(NULL, ith_comm_barrier(NULL));
    ith_comm *part = (ith_comm *)from;
    check(NULL, ith_comm_split(NULL, 0, 0, &part));
    assert_null(part);
    REFUSED(NULL, "out is NULL", ith_comm_split(NULL, 0, 0, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_passes),
        cmocka_unit_test(transfers_without_a_partner_are_refused),
        cmocka_unit_test(a_group_that_has_ended_is_not_split),
        cmocka_unit_test(a_table_of_required_functions_passes),
        cmocka_unit_test(the_library_keeps_the_contract),
        cmocka_unit_test(a_part_ends_with_the_whole),
        cmocka_unit_test(a_call_ends_before_its_rank_leaves),
        cmocka_unit_test(a_request_is_waited_for_once),
        cmocka_unit_test(requests_are_limited),
        cmocka_unit_test(a_split_sends_nothing_of_the_stack),
        cmocka_unit_test(wrong_tables_are_refused),
        cmocka_unit_test(a_shorter_table_is_taken),
        cmocka_unit_test(one_rank_needs_no_communicator),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
