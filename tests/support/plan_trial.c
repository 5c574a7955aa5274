/* SPDX-License-Identifier: Apache-2.0 */
#include "support/plan_trial.h"

#include "support/in_rank.h"
#include "support/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

trial new_trial(void)
{
    trial t = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .odd_rank = -1, .execute = true};
    t.problem.batch = 2, t.problem.heads = 3, t.problem.head_dim = 8;
    t.problem.q_len = t.problem.kv_len = 10;
    return t;
}

ith_status trial_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    trial *t = user;
    int rank = ith_comm_rank(comm);
    ith_attn_problem problem = t->problem;
    ith_attn_options options = t->options;
    bool odd = t->odd_rank < 0 || t->odd_rank == rank;
    static const float untouched = -77;
    float q[TRIAL_NUMBERS], k[TRIAL_NUMBERS], v[TRIAL_NUMBERS], o[TRIAL_NUMBERS];
    for (int i = 0; i < TRIAL_NUMBERS; i++)
        q[i] = k[i] = v[i] = 1, o[i] = untouched;
    ith_attn_tensors tensors = {.struct_size = sizeof(ith_attn_tensors), .q = q, .k = k, .v = v, .o = o};
    if (odd && t->spoil)
        t->spoil(&problem, &options);
    ith_plan *plan = NULL;
    if (rank == 0)
        t->info = (ith_plan_info)ITH_PLAN_INFO_INIT;
    ith_status status = ith_plan_create(context, &problem, &options, comm, &plan);
    RANK_CHECK(context, !status == (plan != NULL));
    if (plan && rank == 0) {
        ith_plan_print(plan, t->plan, sizeof t->plan);
        RANK_TRY(ith_plan_describe(plan, &t->info));
    }
    if (odd && t->spoil_tensors)
        t->spoil_tensors(&tensors);
    if (plan && t->execute)
        status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    RANK_CHECK(context, !status || t->may_write || o[0] == untouched);
    t->seen[rank] = status;
    snprintf(t->sentences[rank], ITH_ERROR_BYTES, "%s", ith_context_error(context));
    return status;
}

ith_status run_trial_in(ith_context *context, trial *t, int ranks)
{
    ith_status status = ith_run_ranks(context, ranks, ranks, trial_in_rank, t);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(t->seen[rank], status);
        if (status)
            assert_string_equal(t->sentences[rank], ith_context_error(context));
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    return status;
}

ith_status run_trial(trial *t, int ranks)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = run_trial_in(context, t, ranks);
    ith_context_destroy(&context);
    return status;
}

void expect_refusal(trial *t, int ranks, ith_status status, const char *word)
{
    ith_status seen = run_trial(t, ranks);
    if (seen != status || !strstr(t->sentences[0], word))
        print_error("expected '%s': %s\n", word, t->sentences[0]);
    assert_int_equal(seen, status);
    assert_non_null(strstr(t->sentences[0], word));
}

void expect_refusals(trial_spoiler spoil, const char *word)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int odd = -1; odd < ranks; odd++) {
            trial t = new_trial();
            t.odd_rank = odd;
            t.spoil = spoil;
            expect_refusal(&t, ranks, ITH_ERR_ARGUMENT, word);
        }
}
