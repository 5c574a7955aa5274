/* SPDX-License-Identifier: Apache-2.0 */
/* A stop, a rank that leaves or a refused allocation on one rank ends the run on all ranks soon, with one status and
 * one sentence. */
#include "support/engine/rank_team.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The most seconds until a run ends: longer on a machine with more work than processors. */
static double most_seconds(void)
{
    double load = 0;
    if (getloadavg(&load, 1) != 1)
        load = 0;
    return 10 * fmax(1, load / (double)sysconf(_SC_NPROCESSORS_ONLN));
}

static void expect_prompt_end(const team *t)
{
    for (int i = 0; i < t->ranks; i++)
        if (!t->members[i].absent && t->members[i].ended_at - t->stopped_at > most_seconds())
            fail_msg("rank %d ended %.1f s later", i, t->members[i].ended_at - t->stopped_at);
}

/* Rank `rank` of three ends the run at a moment. way: 0 by its callback, 1 by cancelling its pipeline, 2 by aborting
 * its group. */
static void end_run(int pipelines, int hosts, bool shards, int rank, int way, int moment)
{
    const char *const words = moment == ITH_STAGE_DECODE ? "decoding frame" : "stopped";
    team *t = calloc(1, sizeof *t);
    t->hosts = hosts;
    team_open(t, 3, pipelines);
    t->moment = moment;
    for (int r = 0; r < 3; r++)
        t->members[r].options.shard_weights = shards;
    member *m = &t->members[rank];
    m->stop_at = moment < 0 ? 1 + way : 1, m->cancels = way == 1, m->aborts = way == 2;
    team_run(t);
    assert_true(t->stopped);
    if (m->aborts)
        team_expect_failure(t, ITH_ERR_NUMERIC, "ended the group");
    else
        team_expect_failure(t, ITH_ERR_INTERRUPTED, words);
    expect_prompt_end(t);
    team_close(t);
    free(t);
}

static void any_rank_may_end_the_run(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) /* one pipeline; two; two that shard the weights */
        for (int rank = 0; rank < 3; rank++)
            for (int way = 0; way < 3; way++)
                end_run(kind ? 2 : 1, 0, kind == 2, rank, way, -1);
}

/* A rank ends the run while layers are loaded from other processes, or while each process decodes its rows. A short
 * decoding may end before a rank that is no leader calls should_stop, so there every rank is a leader. */
static void any_rank_may_end_a_stage_of_several_processes(void **state)
{
    (void)state;
    static const ith_stage stages[] = {ITH_STAGE_DENOISE, ITH_STAGE_DECODE};
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 3; rank++)
            for (int way = 0; way < 3; way++)
                end_run(stages[i] == ITH_STAGE_DECODE ? 3 : 2 + (rank + way) % 2, 2, true, rank, way, (int)stages[i]);
}

static void a_rank_that_leaves_ends_the_run(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        team *t = calloc(1, sizeof *t);
        team_open(t, 3, 2);
        t->members[rank].absent = true;
        team_run(t);
        team_expect_failure(t, ITH_ERR_ABORTED, "left");
        team_close(t);
        free(t);
    }
}

/* Refuses allocations of the second of two pipelines, which one of three ranks uses. */
static void refuse_allocations(unsigned without_model, long step)
{
    long calls = 0;
    lacking = without_model;
    for (long refuse = 0; refuse <= calls; refuse += step) {
        team *t = calloc(1, sizeof *t);
        team_open(t, 3, 2);
        for (int r = 0; r < 3; r++) {
            ith_generate_options *o = &t->members[r].options;
            o->frames = 1, o->steps = 2, o->shard_weights = 1;
        }
        atomic_store(&t->allocators[1].calls, 0);
        t->allocators[1].refuse = refuse ? refuse : -1;
        team_run(t);
        if (!refuse) {
            team_expect_success(t);
            calls = atomic_load(&t->allocators[1].calls);
        } else if (t->members[0].status) { /* the run may go on without some of them */
            team_expect_failure(t, ITH_ERR_MEMORY, "memory");
        }
        team_close(t);
        free(t);
    }
    lacking = 0;
    printf("%ld allocations\n", calls);
    assert_true(calls > 100);
}

static void no_allocation_may_fail_unseen(void **state)
{
    (void)state;
    refuse_allocations(0, 23);
}

/* The process of rank 1 has no model: rank 0 sends it the prompts. */
static void no_allocation_of_a_borrower_may_fail_unseen(void **state)
{
    (void)state;
    refuse_allocations(2, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_rank_may_end_the_run),
        cmocka_unit_test(any_rank_may_end_a_stage_of_several_processes),
        cmocka_unit_test(a_rank_that_leaves_ends_the_run),
        cmocka_unit_test(no_allocation_may_fail_unseen),
        cmocka_unit_test(no_allocation_of_a_borrower_may_fail_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
