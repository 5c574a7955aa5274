/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators on the transport of a shared module. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "socket_meeting.h"
#include "support/fixture.h"
#include "support/refused.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3 };

static int be_rank(int rank, const char *folder, void *user)
{
    char where[256];
    int all[RANKS] = {0};
    ith_context *own = NULL;
    ith_comm *comm = NULL;
    (void)user;
    snprintf(where, sizeof where, "%s %d %d", folder, rank, RANKS);
    ith_status status = ith_context_create(NULL, &own);
    if (!status)
        status = ith_comm_connect(own, "socket", where, &comm);
    if (!status)
        status = ith_comm_allgather(comm, &rank, sizeof rank, all);
    if (status)
        fprintf(stderr, "rank %d: %s: %s\n", rank, ith_status_name(status), ith_context_error(own));
    bool right = !status && ith_comm_rank(comm) == rank && ith_comm_size(comm) == RANKS;
    for (int i = 0; i < RANKS; i++)
        right &= all[i] == i;
    ith_comm_destroy(&comm);
    ith_context_destroy(&own);
    return !right;
}

static void processes_meet_through_a_module(void **state)
{
    (void)state;
    int statuses[RANKS];
    assert_int_equal(socket_run_processes(RANKS, be_rank, NULL, statuses), 0);
}

/* One rank of a group that ith_run_ranks_connected has connected: every rank is a process of its own. */
static ith_status look_at_places(ith_context *own, ith_comm *comm, void *user)
{
    ith_place place = ITH_PLACE_INIT;
    int all[RANKS] = {0}, rank = ith_comm_rank(comm);
    ith_status status = ith_comm_allgather(comm, &rank, sizeof rank, all);
    bool right = ith_comm_size(comm) == RANKS;
    for (int i = 0; i < RANKS && !status; i++) {
        status = ith_comm_place(comm, i, &place);
        right &= all[i] == i && place.process == i && place.host == 0 && (i != rank || place.pid == getpid());
    }
    *(int *)user += right && !status;
    (void)own;
    return ith_comm_place(comm, RANKS, &place) == ITH_ERR_ARGUMENT ? status : ITH_ERR_INTERNAL;
}

static int be_process(int rank, const char *folder, void *user)
{
    char where[128];
    int right = 0;
    ith_context *own = NULL;
    (void)user;
    snprintf(where, sizeof where, "%s %d %d", folder, rank, RANKS);
    ith_status status = ith_context_create(NULL, &own);
    if (!status)
        status = ith_run_ranks_connected(own, "socket", where, 1, 1, look_at_places, &right);
    if (status)
        fprintf(stderr, "rank %d: %s: %s\n", rank, ith_status_name(status), ith_context_error(own));
    ith_context_destroy(&own);
    return status || right != 1;
}

static void ranks_run_on_a_module(void **state)
{
    (void)state;
    int statuses[RANKS];
    assert_int_equal(socket_run_processes(RANKS, be_process, NULL, statuses), 0);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);

static bool refuses_threads;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    return refuses_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, user);
}

static ith_status wait_for_all(ith_context *own, ith_comm *comm, void *user)
{
    (void)own, (void)user;
    return ith_comm_barrier(comm);
}

/* The process of rank 1 cannot start the thread of its rank. */
static int be_process_of_few_threads(int rank, const char *folder, void *user)
{
    char where[128];
    ith_context *own = NULL;
    (void)user;
    snprintf(where, sizeof where, "%s %d %d", folder, rank, RANKS);
    ith_status status = ith_context_create(NULL, &own);
    refuses_threads = rank == 1;
    if (!status)
        status = ith_run_ranks_connected(own, "socket", where, 1, 1, wait_for_all, NULL);
    const bool said = strstr(ith_context_error(own), "could not be started") != NULL;
    if (!said)
        fprintf(stderr, "rank %d: %s: %s\n", rank, ith_status_name(status), ith_context_error(own));
    ith_context_destroy(&own);
    return status != ITH_ERR_MEMORY || !said;
}

static void the_others_learn_that_a_process_has_no_threads(void **state)
{
    (void)state;
    int statuses[RANKS];
    assert_int_equal(socket_run_processes(RANKS, be_process_of_few_threads, NULL, statuses), 0);
}

static void ranks_on_a_module_are_refused(void **state)
{
    (void)state;
    int right = 0;
    REFUSED(NULL, "context is NULL", ith_run_ranks_connected(NULL, "socket", "", 1, 1, look_at_places, &right));
    REFUSED(context, "name is NULL", ith_run_ranks_connected(context, NULL, "", 1, 1, look_at_places, &right));
    REFUSED(context, "ranks is 0 (at least 1)",
            ith_run_ranks_connected(context, "socket", "", 0, 1, look_at_places, &right));
    REFUSED(context, "fn is NULL", ith_run_ranks_connected(context, "socket", "", 1, 1, NULL, &right));
    assert_int_equal(ith_run_ranks_connected(context, "socket", "/nowhere 0 2", 2, 1, look_at_places, &right),
                     ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "it takes one rank in each process"));
    assert_int_equal(right, 0);
}

/* If one rank cannot be made, no rank runs, all states of the module are closed, and the sentence says why. */
static void a_module_may_miscount(void **state)
{
    (void)state;
    int right = 0, closed = 0;
    char where[32];
    snprintf(where, sizeof where, "%p", (void *)&closed);
    assert_int_equal(ith_run_ranks_connected(context, "miscounting", where, 3, 1, look_at_places, &right),
                     ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "rank is 7 and size is 3"));
    assert_int_equal(closed, 3);
    assert_int_equal(right, 0);
}

static void the_reason_of_a_refusal_is_told(void **state)
{
    (void)state;
    ith_comm *comm = (ith_comm *)state;
    REFUSED(NULL, "context is NULL", ith_comm_connect(NULL, "socket", "", &comm));
    assert_null(comm);
    REFUSED(context, "name is NULL", ith_comm_connect(context, NULL, "", &comm));
    REFUSED(context, "out is NULL", ith_comm_connect(context, "socket", "", NULL));
    REFUSED(context, "did not connect: where is FOLDER RANK RANKS", ith_comm_connect(context, "socket", NULL, &comm));
    assert_int_equal(ith_comm_connect(context, "socket", "/nowhere 0 2", &comm), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "/nowhere/0: No such file"));
    const char *const names[][2] = {{"future", "it was built for ABI 4; this library takes ABI 3"},
                                    {"hollow", "lacks its table or connect"},
                                    {"tableless", "lacks its table or connect"},
                                    {"absent", "no module ithaca_transport_absent.so was found"},
                                    {"", "no module"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(ith_comm_connect(context, names[i][0], NULL, &comm), ITH_ERR_UNSUPPORTED);
        assert_non_null(strstr(ith_context_error(context), names[i][1]));
        assert_null(comm);
    }
    char longest[4096] = {0};
    memset(longest, 'x', sizeof longest - 1);
    assert_int_equal(ith_comm_connect(context, longest, NULL, &comm), ITH_ERR_UNSUPPORTED);
}

int main(void)
{
    if (setenv("ITHACA_PLUGIN_PATH", MODULES, 1))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_meet_through_a_module),
                                       cmocka_unit_test(the_reason_of_a_refusal_is_told),
                                       cmocka_unit_test(ranks_run_on_a_module),
                                       cmocka_unit_test(the_others_learn_that_a_process_has_no_threads),
                                       cmocka_unit_test(ranks_on_a_module_are_refused),
                                       cmocka_unit_test(a_module_may_miscount)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
