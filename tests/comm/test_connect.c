/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators on the transport of a shared module. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "socket_meeting.h"
#include "support/fixture.h"
#include "support/refused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const char *const names[][2] = {{"future", "it was built for ABI 2; this library takes ABI 1"},
                                    {"hollow", "lacks its table or connect"},
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
                                       cmocka_unit_test(the_reason_of_a_refusal_is_told)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
