/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run learn about one another's processes and hosts, and compare numbers. */
#include "base/context.h"
#include "wan/run/agreement.h"

#include "support/engine/rank_team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A rank that agrees on a run, and its results. */
typedef struct agreement {
    member *m;
    ith_rank rank;
    int64_t sum;
    ith_status agreed, alike, other_follower, other_leader;
    char follower[256], leader[256]; /* the sentences of the last two */
} agreement;

static void *agree_main(void *user)
{
    agreement *a = user;
    const member *m = a->m;
    const int number = m->rank;
    const int64_t mine[] = {1, 10, 100, 1000};
    uint64_t run = 0;
    a->rank = (ith_rank){.pipeline = m->pipeline, .context = m->context, .comm = m->comm, .options = m->options};
    a->rank.rank = number, a->rank.ranks = m->team->ranks;
    a->agreed = ith_agree_on_run(&a->rank, ITH_OK, &run);
    if (a->agreed)
        return NULL;
    a->agreed = ith_sum_of_host(&a->rank, mine[number], &a->sum);
    a->alike = ith_rank_compare(&a->rank, "a number", number == 3, true);
    a->other_follower = ith_rank_compare(&a->rank, "a number", number == 3, false);
    snprintf(a->follower, sizeof a->follower, "%s", ith_context_error(m->context));
    a->other_leader = ith_rank_compare(&a->rank, "a number", number == 1, true);
    snprintf(a->leader, sizeof a->leader, "%s", ith_context_error(m->context));
    return NULL;
}

/* Ranks 0 and 3 share a process. It is on a host with the process of rank 1; rank 2 is alone on its host. */
static void ranks_know_processes_and_hosts(void **state)
{
    (void)state;
    static const struct {
        int process, host, position, count, host_processes, host_ranks;
        bool first_on_host;
        int64_t sum; /* of the leaders' numbers */
    } expected[] = {{0, 0, 0, 2, 2, 3, true, 11},
                    {1, 0, 0, 1, 2, 3, false, 11},
                    {2, 1, 0, 1, 1, 1, true, 100},
                    {0, 0, 1, 2, 2, 3, true, 11}};
    agreement all[4] = {{.m = NULL}};
    team *t = calloc(1, sizeof *t);
    t->hosts = 2;
    team_open(t, 4, 3);
    for (int r = 0; r < 4; r++) {
        all[r].m = &t->members[r];
        assert_int_equal(pthread_create(&t->members[r].thread, NULL, agree_main, &all[r]), 0);
    }
    for (int r = 0; r < 4; r++)
        pthread_join(t->members[r].thread, NULL);
    for (int r = 0; r < 4; r++) {
        const ith_team *of = &all[r].rank.team;
        if (all[r].agreed)
            fail_msg("rank %d: %s", r, ith_context_error(t->members[r].context));
        assert_int_equal(of->processes, 3);
        assert_int_equal(of->hosts, 2);
        assert_int_equal(of->process, expected[r].process);
        assert_int_equal(of->host, expected[r].host);
        assert_int_equal(all[r].rank.position, expected[r].position);
        assert_int_equal(of->count, expected[r].count);
        assert_int_equal(ith_team_member(of, 0), r % 3);
        assert_int_equal(ith_team_member(of, of->count - 1), r % 3 ? r : 3);
        assert_int_equal(of->host_processes, expected[r].host_processes);
        assert_int_equal(of->host_ranks, expected[r].host_ranks);
        assert_int_equal(of->first_on_host, expected[r].first_on_host);
        assert_int_equal(all[r].sum, expected[r].sum);
        assert_int_equal(all[r].alike, ITH_OK); /* rank 3 is no leader */
        assert_int_equal(all[r].other_follower, ITH_ERR_ARGUMENT);
        assert_non_null(strstr(all[r].follower, "a number of rank 3 and of rank 0 differ"));
        assert_int_equal(all[r].other_leader, ITH_ERR_ARGUMENT);
        assert_non_null(strstr(all[r].leader, "a number of rank 1 and of rank 0 differ"));
        ith_free(t->members[r].context, all[r].rank.records);
    }
    team_close(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_know_processes_and_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
