/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, communicators and ranks used wrongly, or destroyed in an unusual order; and the calls that a transport
 * gets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "support/in_rank.h"
#include "support/memory.h"
#include "support/rank_group.h"
#include "support/refused.h"
#include "support/times.h"

/* ---- Any order of destruction ---------------------------------------------------------------------------------- */

/* Destroys two contexts and two communicators in all orders. No memory is lost. */
static void groups_outlive_their_contexts(void **state)
{
    (void)state;
    for (int order = 0; order < 24; order++) {
        failing_allocator allocator;
        rank_group g;
        int left[4] = {0, 1, 2, 3}, code = order;
        assert_int_equal(group_create(&g, failing_context(&allocator, -1), 2), ITH_OK);
        for (int things = 4; things > 0; things--) {
            int at = code % things, thing = left[at];
            code /= things;
            memmove(left + at, left + at + 1, sizeof(int) * (size_t)(things - at - 1));
            if (thing < 2)
                ith_context_destroy(&g.contexts[thing]);
            else
                ith_comm_destroy(&g.comms[thing - 2]);
        }
        assert_int_equal(atomic_load(&allocator.held), 0);
    }
}

/* A context and its clones share some state. This state lives until the last of them is destroyed. */
static void clones_outlive_their_parent(void **state)
{
    (void)state;
    failing_allocator allocator;
    ith_context *root = failing_context(&allocator, -1), *clone = NULL, *second = NULL;
    assert_int_equal(ith_context_clone(root, &clone), ITH_OK);
    ith_context_destroy(&root);
    assert_int_equal(ith_context_clone(clone, &second), ITH_OK);
    ith_context_destroy(&clone);
    void *block = ith_alloc(second, 10, 10, "a block");
    assert_true(ith_context_bytes(second) >= 100);
    ith_free(second, block);
    ith_context_destroy(&second);
    assert_int_equal(atomic_load(&allocator.held), 0);
}

/* ---- Arguments ------------------------------------------------------------------------------------------------- */

static void every_rank_has_its_own_context(void **state)
{
    (void)state;
    ith_context *root = NULL, *clone = NULL;
    ith_comm *comms[3] = {NULL};
    assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
    assert_int_equal(ith_context_clone(root, &clone), ITH_OK);
    ith_context *contexts[] = {root, clone, root};
    assert_int_equal(ith_comm_create_local(contexts, 3, comms), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(root), "contexts[2] is contexts[0]"));
    assert_null(comms[0]);
    ith_context_destroy(&clone);
    ith_context_destroy(&root);
}

static void who_is_no_rank_has_no_share(void **state)
{
    (void)state;
    static const struct {
        int64_t length;
        int ranks, rank;
    } rows[] = {{100, 4, 7}, {100, 4, 4}, {100, 4, -1}, {100, 0, 0}, {100, -3, 0}, {-5, 4, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t begin = 77, count = 77;
        ith_share(rows[i].length, rows[i].ranks, rows[i].rank, &begin, &count);
        assert_int_equal(begin, 0);
        assert_int_equal(count, 0);
    }
}

static ith_status return_nonsense(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    if (ith_comm_rank(comm) == 1)
        return (ith_status) * (int *)user;
    return ith_comm_barrier(comm); /* rank 1 does not come to it */
}

static void nonsense_is_a_failure(void **state)
{
    (void)state;
    int returned[] = {7, 1, -11, -1000000};
    char words[64];
    for (size_t i = 0; i < sizeof returned / sizeof *returned; i++) {
        ith_context *context = NULL;
        assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
        assert_int_equal(ith_run_ranks(context, 3, 0, return_nonsense, &returned[i]), ITH_ERR_ABORTED);
        snprintf(words, sizeof words, "rank 1 returned %d", returned[i]);
        assert_non_null(strstr(ith_context_error(context), words));
        ith_context_destroy(&context);
    }
}

static void *no_memory(void *user, size_t bytes, size_t alignment)
{
    (void)user, (void)bytes, (void)alignment;
    return NULL;
}

/* Both functions of an allocator are needed. */
static void half_an_allocator_is_refused(void **state)
{
    (void)state;
    ith_allocator allocator = {0};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *context = NULL;
    options.allocator = &allocator;
    assert_int_equal(ith_context_create(&options, &context), ITH_ERR_ARGUMENT);
    allocator.allocate = no_memory;
    assert_int_equal(ith_context_create(&options, &context), ITH_ERR_ARGUMENT);
    assert_null(context);
}

static ith_status do_nothing(ith_context *context, ith_comm *comm, void *user)
{
    (void)context, (void)comm, (void)user;
    return ITH_OK;
}

/* From call number `at` on, odd_allocate gives memory with half of the alignment that is asked for. */
typedef struct odd_allocator {
    int at, calls, held;
} odd_allocator;

static void *odd_allocate(void *user, size_t bytes, size_t alignment)
{
    odd_allocator *odd = user;
    char *block = aligned_alloc(alignment, (bytes / alignment + 2) * alignment);
    assert_non_null(block);
    const size_t offset = ++odd->calls >= odd->at ? alignment / 2 : 0;
    odd->held++;
    return block + offset;
}

static void odd_release(void *user, void *pointer)
{
    odd_allocator *odd = user;
    odd->held--;
    free((char *)pointer - (uintptr_t)pointer % 64);
}

/* An allocator that ignores the alignment, as a plain malloc does. */
static void misaligned_memory_is_refused(void **state)
{
    (void)state;
    odd_allocator odd = {.at = 1};
    ith_allocator allocator = {sizeof allocator, odd_allocate, odd_release, &odd};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *own = NULL, *clone = NULL;
    options.allocator = &allocator;
    REFUSED_AS(ITH_ERR_MEMORY, NULL, "alignment", ith_context_create(&options, &own));
    odd = (odd_allocator){.at = 2};
    assert_int_equal(ith_context_create(&options, &own), ITH_OK);
    REFUSED_AS(ITH_ERR_MEMORY, own, "alignment", ith_context_clone(own, &clone));
    REFUSED_AS(ITH_ERR_MEMORY, own, "alignment", ith_trace_start(own, 10));
    assert_null(ith_alloc(own, 100, 1, "a test"));
    assert_non_null(strstr(ith_context_error(own), "ignored the alignment of 64 bytes for a test"));
    ith_context_destroy(&own);
    assert_int_equal(odd.held, 0);
}

/* More threads than the process may have are refused before any is started. */
static void threads_have_a_limit(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_run_ranks(context, 2, 1 << 24, do_nothing, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "threads is 16777216, and this process may have at most"));
    assert_int_equal(ith_run_ranks(context, 1 << 24, 0, do_nothing, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "ranks is 16777216"));
    assert_int_equal(ith_run_ranks(context, 2, 3, do_nothing, NULL), ITH_OK);
    ith_context_destroy(&context);
}

/* ---- Signs of life --------------------------------------------------------------------------------------------- */

typedef struct signs {
    bool alive;
    double limit; /* seconds */
} signs;

/* Rank 1 keeps the others waiting for twice the limit. It gives signs of life only if `alive` is set. */
static ith_status compute_for_long(ith_context *context, ith_comm *comm, void *user)
{
    const signs *s = user;
    (void)context;
    ith_comm_set_timeout(comm, s->limit);
    for (int i = 0; i < 50 && ith_comm_rank(comm) == 1; i++) {
        if (s->alive)
            ith_comm_alive(comm);
        nap(s->limit / 25);
    }
    return ith_comm_barrier(comm);
}

static bool is_seen(signs s)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, 3, 0, compute_for_long, &s);
    bool right = status == (s.alive ? ITH_OK : ITH_ERR_TIMEOUT);
    if (!s.alive)
        right &= strstr(ith_context_error(context),
                        " s for rank 1 in a barrier (exchange 0 of group 0): no sign of life") != NULL;
    ith_context_destroy(&context);
    return right;
}

/* A busy machine may leave a rank without a processor for longer than the limit, so longer limits are tried as well. */
static void who_gives_signs_of_life_is_not_dead(void **state)
{
    (void)state;
    for (int alive = 0; alive < 2; alive++) {
        double limit = 0.5;
        while (!is_seen((signs){alive, limit}) && limit < 20)
            limit *= 4;
        assert_true(limit < 20);
    }
    ith_comm_alive(NULL);
}

/* ---- Who is waited for ------------------------------------------------------------------------------------------- */

enum { LARGE = 100000 }; /* bytes that the local transport does not copy before a rank waits */

static ith_transfer large(int peer, char *data)
{
    return (ith_transfer){peer, {.data = data, .count = {1, 1}, .bytes = LARGE}};
}

/* The silent rank that the transport names for a request of rank 0. */
static int silent_rank(const rank_group *g, const ith_request *request)
{
    int rank = -1;
    g->comms[0]->transport.silence(g->comms[0]->transport_state, request->number, &rank);
    return rank;
}

/* A rank waits for the others of its exchange that have not posted it, and for nobody else, however long they have been
 * silent. */
static void the_silent_rank_takes_part_and_is_late(void **state)
{
    (void)state;
    static char from[2][LARGE], to[2][LARGE];
    const ith_transfer send[] = {large(0, from[0]), large(0, from[1])}, receive[] = {large(1, to[0]), large(2, to[1])};
    ith_request *requests[3] = {NULL};
    ith_context *root = NULL;
    rank_group g;
    assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
    assert_int_equal(group_create(&g, root, 3), ITH_OK);
    assert_int_equal(ith_comm_post(g.comms[0], NULL, 0, &receive[0], 1, &requests[0]), ITH_OK);
    ith_comm_alive(g.comms[1]); /* rank 2 has never given a sign of life, but is not in this exchange */
    assert_int_equal(silent_rank(&g, requests[0]), 1);
    assert_int_equal(ith_comm_post(g.comms[1], &send[0], 1, NULL, 0, &requests[1]), ITH_OK);
    assert_int_equal(ith_comm_post(g.comms[2], NULL, 0, NULL, 0, &requests[2]), ITH_OK);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(ith_comm_wait(g.comms[rank], &requests[rank]), ITH_OK);
    assert_int_equal(ith_comm_post(g.comms[1], &send[0], 1, NULL, 0, &requests[1]), ITH_OK);
    nap(1e-3);
    ith_comm_alive(g.comms[2]); /* rank 1 has been silent for longer, but has posted its part */
    assert_int_equal(ith_comm_post(g.comms[0], NULL, 0, receive, 2, &requests[0]), ITH_OK);
    assert_int_equal(silent_rank(&g, requests[0]), 2);
    assert_int_equal(ith_comm_post(g.comms[2], &send[1], 1, NULL, 0, &requests[2]), ITH_OK);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(ith_comm_wait(g.comms[rank], &requests[rank]), ITH_OK);
    group_destroy(&g);
    ith_context_destroy(&root);
}

/* ---- A transport that computes nothing and counts its calls ------------------------------------------------------ */

enum { MOST_EXCHANGES = 100 }; /* more than any test here needs */

typedef struct counting {
    int exchanges, signs, unshared, drained;
    ith_status ended;
    char sentence[ITH_ERROR_BYTES];
} counting;

static ith_status counting_exchange(void *state, const ith_operation *operation)
{
    (void)operation;
    return ++((counting *)state)->exchanges > MOST_EXCHANGES ? ITH_ERR_IO : ITH_OK;
}

static ith_status counting_wait(void *state, int64_t request, double seconds, bool *done)
{
    (void)state, (void)request, (void)seconds;
    *done = true;
    return ITH_OK;
}

static ith_status counting_failure(void *state, const char **sentence)
{
    *sentence = ((counting *)state)->sentence;
    return ((counting *)state)->ended;
}

static ith_status counting_split(void *state, const ith_subgroup *subgroup, void **out)
{
    (void)subgroup;
    *out = state;
    return ITH_OK;
}

static void counting_abort(void *state, ith_status status, const char *sentence)
{
    counting *c = state;
    if (c->ended)
        return;
    c->ended = status;
    snprintf(c->sentence, sizeof c->sentence, "%s", sentence);
}

static void counting_close(void *state)
{
    (void)state;
}

static void counting_alive(void *state)
{
    ((counting *)state)->signs++;
}

static ith_status failing_share(void *state)
{
    (void)state;
    return ITH_ERR_IO;
}

static void counting_unshare(void *state)
{
    ((counting *)state)->unshared++;
}

static void counting_drain(void *state)
{
    ((counting *)state)->drained++;
}

static const ith_transport counting_transport = {.struct_size = sizeof(ith_transport),
                                                 .name = "counting",
                                                 .requests = ITH_TRANSPORT_LEAST_REQUESTS,
                                                 .exchange = counting_exchange,
                                                 .wait = counting_wait,
                                                 .failure = counting_failure,
                                                 .split = counting_split,
                                                 .abort = counting_abort,
                                                 .close = counting_close,
                                                 .alive = counting_alive};

/* A rank 0 of `size` ranks over such a transport. */
typedef struct lone_rank {
    ith_context *context;
    ith_comm *comm;
    counting counts;
} lone_rank;

static void make_lone_rank(lone_rank *r, const ith_transport *table, int size)
{
    *r = (lone_rank){.comm = NULL};
    assert_int_equal(ith_context_create(NULL, &r->context), ITH_OK);
    assert_int_equal(ith_comm_create(r->context, table, &r->counts, 0, size, &r->comm), ITH_OK);
}

static void destroy_lone_rank(lone_rank *r)
{
    ith_comm_destroy(&r->comm);
    ith_context_destroy(&r->context);
}

/* A plan may keep a communicator that the rank has left. Then the transport is asked nothing more. */
static void who_has_left_gives_no_signs(void **state)
{
    (void)state;
    lone_rank r;
    make_lone_rank(&r, &counting_transport, 1);
    ith_comm *held = ith_comm_hold(r.comm);
    ith_comm_alive(held);
    assert_int_equal(r.counts.signs, 1);
    ith_comm_destroy(&r.comm);
    ith_comm_alive(held);
    assert_int_equal(r.counts.signs, 1);
    ith_comm_release(held);
    destroy_lone_rank(&r);
}

/* Between processes the sentence of an abort names the rank, once. */
static void an_abort_names_its_rank(void **state)
{
    (void)state;
    static const char *const said[][2] = {{"the disk is lost", "rank 0: the disk is lost"},
                                          {"rank 0: the disk is lost", "rank 0: the disk is lost"},
                                          {"", "rank 0 ended the group (ITH_ERR_IO)"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        lone_rank r;
        make_lone_rank(&r, &counting_transport, 1);
        ith_fail(r.context, ITH_ERR_IO, "%s", said[i][0]);
        ith_comm_abort(r.comm, ITH_ERR_IO);
        assert_string_equal(r.counts.sentence, said[i][1]);
        destroy_lone_rank(&r);
    }
}

static void what_is_no_failure_counts_as_an_abort(void **state)
{
    (void)state;
    static const int given[] = {0, 7, -1000, ITH_ERR_IO};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        lone_rank r;
        make_lone_rank(&r, &counting_transport, 1);
        ith_comm_abort(r.comm, (ith_status)given[i]);
        assert_int_equal(r.counts.ended, given[i] == ITH_ERR_IO ? ITH_ERR_IO : ITH_ERR_ABORTED);
        destroy_lone_rank(&r);
    }
}

/* However many ranks there are, a round reduces some values. */
static void large_groups_reduce_too(void **state)
{
    (void)state;
    float values[ITH_COMM_LEAST_PIECE + 1] = {0};
    lone_rank r;
    make_lone_rank(&r, &counting_transport, 5000);
    assert_int_equal(ith_comm_allreduce(r.comm, values, ITH_COMM_LEAST_PIECE + 1, ITH_REDUCE_SUM), ITH_OK);
    assert_int_equal(r.counts.exchanges, 2);
    destroy_lone_rank(&r);
}

/* A rank that could not share its memory has nothing to unshare. Others may still read its memory until `drain`
 * returns. */
static void what_was_not_shared_is_not_unshared(void **state)
{
    (void)state;
    int record = 0;
    lone_rank r;
    ith_transport table = counting_transport;
    table.share = failing_share, table.unshare = counting_unshare, table.drain = counting_drain;
    make_lone_rank(&r, &table, 1);
    assert_int_equal(ith_comm_begin_call(r.comm, &record, sizeof record), ITH_ERR_IO);
    assert_int_equal(r.counts.drained, 1);
    ith_comm_destroy(&r.comm);
    assert_int_equal(r.counts.unshared, 0);
    destroy_lone_rank(&r);
}

static void sub_groups_have_the_time_limit(void **state)
{
    (void)state;
    ith_comm *part = NULL;
    lone_rank r;
    make_lone_rank(&r, &counting_transport, 1);
    ith_comm_set_timeout(r.comm, 12.5);
    assert_int_equal(ith_comm_split(r.comm, 0, 0, &part), ITH_OK);
    assert_true(part->timeout_seconds == 12.5);
    ith_comm_destroy(&part);
    destroy_lone_rank(&r);
}

static void notify(void *state, int64_t number)
{
    (void)state, (void)number;
}

/* Functions that need one another are there together. */
static void incomplete_tables_are_refused(void **state)
{
    (void)state;
    ith_transport tables[4];
    ith_context *context = NULL;
    ith_comm *comm = NULL;
    counting counts = {0};
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (int i = 0; i < 4; i++)
        tables[i] = counting_transport;
    tables[0].notify = notify;
    tables[1].share = failing_share, tables[1].unshare = counting_unshare;
    tables[2].requests = ITH_TRANSPORT_LEAST_REQUESTS - 1;
    tables[3].requests = 4097;
    for (int i = 0; i < 4; i++)
        assert_int_equal(ith_comm_create(context, &tables[i], &counts, 0, 1, &comm), ITH_ERR_ARGUMENT);
    ith_context_destroy(&context);
}

/* The hosts and the processes of some ranks. */
static const int *hosts, *processes;

static void tell_place(void *state, int rank, ith_place *place)
{
    (void)state;
    place->host = hosts[rank], place->process = processes[rank];
}

/* The largest blocks of consecutive ranks that share a host, and a process if its ranks may share memory. */
static void blocks_follow_from_places(void **state)
{
    (void)state;
    static const struct {
        int ranks, hosts[6], processes[6];
        bool shares;
        int host_ranks, process_ranks;
    } cases[] = {{4, {0, 0, 1, 1}, {0, 0, 1, 1}, true, 2, 2},
                 {4, {0, 0, 1, 1}, {0, 0, 1, 1}, false, 2, 1},
                 {3, {0, 1, 2}, {0, 1, 2}, true, 1, 1},
                 {5, {0, 0, 1, 1, 1}, {0, 0, 1, 1, 1}, true, 5, 1}, /* no common divisor: as if on one host */
                 {6, {0, 0, 0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}, true, 2, 2},
                 {6, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, true, 6, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lone_rank r;
        ith_transport table = counting_transport;
        table.place = tell_place;
        if (cases[i].shares)
            table.share = failing_share, table.unshare = counting_unshare, table.drain = counting_drain;
        hosts = cases[i].hosts, processes = cases[i].processes;
        make_lone_rank(&r, &table, cases[i].ranks);
        const ith_blocks blocks = ith_comm_blocks(r.comm, 0, cases[i].ranks);
        assert_int_equal(blocks.host_ranks, cases[i].host_ranks);
        assert_int_equal(blocks.process_ranks, cases[i].process_ranks);
        destroy_lone_rank(&r);
    }
}

/* A transport without places: every rank is a process of its own on this host, and knows its own number alone. */
static void ranks_without_places_are_processes(void **state)
{
    (void)state;
    lone_rank r;
    make_lone_rank(&r, &counting_transport, 3);
    for (int rank = 0; rank < 3; rank++) {
        ith_place place = ITH_PLACE_INIT;
        assert_int_equal(ith_comm_place(r.comm, rank, &place), ITH_OK);
        assert_int_equal(place.process, rank);
        assert_int_equal(place.pid, rank ? 0 : getpid());
        assert_string_not_equal(place.name, "");
    }
    int members[] = {2, 0}; /* in a sub-group they are the same processes */
    const ith_comm part = {.transport = counting_transport, .whole = r.comm, .members = members, .rank = 1, .size = 2};
    assert_int_equal(ith_comm_place_of(&part, 0).process, 2);
    assert_int_equal(ith_comm_place_of(&part, 1).process, 0);
    destroy_lone_rank(&r);
}

/* A communicator that is destroyed during a call ends the group at once. The rank leaves it when the call ends. */
static void the_call_under_way_is_the_last(void **state)
{
    (void)state;
    lone_rank r;
    make_lone_rank(&r, &counting_transport, 1);
    ith_comm *held = ith_comm_hold(r.comm);
    assert_int_equal(ith_comm_enter(held, r.context), ITH_OK);
    ith_comm_destroy(&r.comm);
    assert_int_equal(r.counts.ended, ITH_ERR_ABORTED);
    assert_string_equal(r.counts.sentence, "rank 0 destroyed its communicator during a call on it");
    assert_false(ith_comm_has_left(held));
    ith_comm_exit(held);
    assert_true(ith_comm_has_left(held));
    ith_comm_release(held);
    destroy_lone_rank(&r);
}

/* A sub-group that is destroyed after the whole group ends nothing any more, not even with an operation in flight. */
static void who_has_left_ends_no_sub_group(void **state)
{
    (void)state;
    lone_rank r;
    ith_comm *part = NULL;
    ith_request *request = NULL;
    make_lone_rank(&r, &counting_transport, 1);
    assert_int_equal(ith_comm_split(r.comm, 0, 0, &part), ITH_OK);
    assert_int_equal(ith_comm_post(part, NULL, 0, NULL, 0, &request), ITH_OK);
    ith_comm_destroy(&r.comm);
    assert_string_equal(r.counts.sentence, "rank 0 left with operations in flight");
    r.counts = (counting){0};
    ith_comm_destroy(&part);
    assert_int_equal(r.counts.ended, ITH_OK);
    destroy_lone_rank(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_outlive_their_contexts),
        cmocka_unit_test(clones_outlive_their_parent),
        cmocka_unit_test(every_rank_has_its_own_context),
        cmocka_unit_test(who_is_no_rank_has_no_share),
        cmocka_unit_test(nonsense_is_a_failure),
        cmocka_unit_test(half_an_allocator_is_refused),
        cmocka_unit_test(misaligned_memory_is_refused),
        cmocka_unit_test(threads_have_a_limit),
        cmocka_unit_test(who_gives_signs_of_life_is_not_dead),
        cmocka_unit_test(who_has_left_gives_no_signs),
        cmocka_unit_test(an_abort_names_its_rank),
        cmocka_unit_test(large_groups_reduce_too),
        cmocka_unit_test(what_is_no_failure_counts_as_an_abort),
        cmocka_unit_test(sub_groups_have_the_time_limit),
        cmocka_unit_test(what_was_not_shared_is_not_unshared),
        cmocka_unit_test(incomplete_tables_are_refused),
        cmocka_unit_test(the_silent_rank_takes_part_and_is_late),
        cmocka_unit_test(blocks_follow_from_places),
        cmocka_unit_test(ranks_without_places_are_processes),
        cmocka_unit_test(the_call_under_way_is_the_last),
        cmocka_unit_test(who_has_left_ends_no_sub_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
