/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that changes messages on their way to rank 1. Wherever it does so, a plan is made and executed, or the
 * ranks fail with a sentence: no rank crashes, and no rank takes another kernel or other tiles than rank 0. */
#include "comm/local/local.h"
#include "comm/suite/suite.h"
#include "support/fixture.h"
#include "support/wrapped_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, LENGTH = 13, ROW = 4 * 8 };

/* The exchange of rank 1 that arrives changed. Only rank 1 uses it while ranks run. */
static struct {
    int left; /* the number of rank 1's exchanges until this one; 1: the next; 0 or less: none */
    int fill; /* the byte that everything in it becomes */
    const void *state;
    int64_t request;
    const ith_transfer *receives;
    int64_t count;
} change;

/* Whether this thread is rank 1. Its first exchange, in the group of all ranks, says so: after a changed message,
 * another rank of a sub-group may count as rank 1, too. */
static bool is_changed(const void *state)
{
    static _Thread_local int rank = -1;
    if (rank < 0)
        rank = ((const local_state *)state)->world_rank;
    return rank == 1;
}

static ith_status noted_exchange(void *state, const ith_operation *operation)
{
    if (is_changed(state) && operation->receive_count && --change.left == 0) {
        change.state = state;
        change.request = operation->request;
        change.receives = operation->receives;
        change.count = operation->receive_count;
    }
    return ith_local_transport.exchange(state, operation);
}

static ith_status changing_wait(void *state, int64_t request, double seconds, bool *done)
{
    ith_status status = ith_local_transport.wait(state, request, seconds, done);
    if (status || !*done || !is_changed(state) || state != change.state || request != change.request)
        return status;
    change.state = NULL;
    for (int64_t i = 0; i < change.count; i++) {
        const ith_region *region = &change.receives[i].region;
        void *data;
        for (int64_t at = 0, bytes; (bytes = ith_region_stretch(region, at, &data)) > 0; at += bytes)
            memset(data, change.fill, (size_t)bytes);
    }
    return status;
}

static atomic_int strangers; /* members of sub-groups that are no rank of the group */

static ith_status checked_split(void *state, const ith_subgroup *subgroup, void **out)
{
    for (int i = 0; i < subgroup->size; i++)
        if (subgroup->members[i] < 0 || subgroup->members[i] >= RANKS)
            atomic_fetch_add(&strangers, 1);
    *out = NULL;
    return atomic_load(&strangers) ? ITH_ERR_MEMORY : ith_local_transport.split(state, subgroup, out);
}

static ith_plan_info plans[RANKS]; /* the plan that each rank made; struct_size 0: none */

static ith_status execute(ith_plan *plan)
{
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    float memory[4][LENGTH * ROW] = {{0}};
    tensors.q = memory[0], tensors.k = memory[1], tensors.v = memory[2], tensors.o = memory[3];
    return ith_plan_execute(plan, &tensors);
}

/* Makes and executes a plan with two axes. If a message is changed, this may fail with a sentence. user: a bool,
 * whether one is changed. */
static ith_status plans_and_executes(ith_context *rank_context, ith_comm *comm, void *user)
{
    const bool *changed = user;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_plan *plan = NULL;
    if (*changed)
        ith_comm_set_timeout(comm, 2);
    problem.heads = 4, problem.head_dim = 8, problem.q_len = problem.kv_len = LENGTH;
    options.ulysses = options.ring = 2;
    ith_status status = ith_plan_create(rank_context, &problem, &options, comm, &plan);
    if (!status && !ith_plan_describe(plan, &info))
        plans[ith_comm_rank(comm)] = info;
    if (!status)
        status = execute(plan);
    ith_plan_destroy(&plan);
    SUITE_CHECK(rank_context, !status || (*changed && strlen(ith_context_error(rank_context)) > 0));
    return ITH_OK;
}

static bool same_choices(const ith_plan_info *a, const ith_plan_info *b)
{
    return !strcmp(a->kernel, b->kernel) && a->block_q == b->block_q && a->block_kv == b->block_kv &&
           a->block_kv_compute == b->block_kv_compute && a->block_kv_compute_in == b->block_kv_compute_in &&
           a->kernel_origin == b->kernel_origin;
}

static void changed_messages_are_survived(void **state)
{
    (void)state;
    static const int fills[] = {'A', 0, 0xff};
    ith_transport changing = ith_local_transport;
    changing.exchange = noted_exchange, changing.wait = changing_wait, changing.split = checked_split;
    changing.share = NULL, changing.unshare = NULL, changing.drain = NULL, changing.place = NULL;
    wrapper table = {&changing, NULL};
    bool changed = false;
    assert_int_equal(wrapped_run(&table, RANKS, plans_and_executes, &changed), 0);
    const int exchanges = -change.left;
    assert_true(exchanges > 0);
    changed = true;
    for (int i = 0; i < 3; i++)
        for (int n = 1; n <= exchanges; n++) {
            change.left = n, change.fill = fills[i], change.state = NULL;
            memset(plans, 0, sizeof plans);
            assert_int_equal(wrapped_run(&table, RANKS, plans_and_executes, &changed), 0);
            assert_int_equal(atomic_load(&strangers), 0);
            for (int rank = 1; rank < RANKS; rank++)
                if (plans[rank].struct_size && plans[0].struct_size && !same_choices(&plans[0], &plans[rank]))
                    fail_msg("rank %d has other tiles than rank 0 (exchange %d filled with %d)", rank, n, fills[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_messages_are_survived)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
