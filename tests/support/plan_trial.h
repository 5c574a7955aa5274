/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt to plan and execute on every rank of a group, with what each rank was told. */
#ifndef ITH_TESTS_PLAN_TRIAL_H
#define ITH_TESTS_PLAN_TRIAL_H

#include "support/held.h"
#include "support/in_rank.h"

#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRIAL_RANKS 6
#define TRIAL_NUMBERS 2000

typedef void (*trial_spoiler)(ith_attn_problem *problem, ith_attn_options *options);

typedef struct trial {
    ith_attn_problem problem;
    ith_attn_options options;
    int odd_rank; /* does as `spoil` says; -1: all do */
    trial_spoiler spoil;
    void (*spoil_tensors)(ith_attn_tensors *tensors);
    bool execute, may_write; /* may_write: o also by a call that fails, once the exchange of results has begun */
    char plan[1024];
    ith_plan_info info; /* of rank 0 */
    ith_status seen[TRIAL_RANKS];
    char sentences[TRIAL_RANKS][ITH_ERROR_BYTES];
} trial;

static inline trial new_trial(void)
{
    trial t = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .odd_rank = -1, .execute = true};
    t.problem.batch = 2, t.problem.heads = 3, t.problem.head_dim = 8;
    t.problem.q_len = t.problem.kv_len = 10;
    return t;
}

/* Plans, and executes on tensors of ones, whole on every rank so that no share reaches past their end. */
static inline ith_status trial_in_rank(ith_context *context, ith_comm *comm, void *user)
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

/* The status of all ranks, which get the same one and the same sentence. */
static inline ith_status run_trial_in(ith_context *context, trial *t, int ranks)
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

static inline ith_status run_trial(trial *t, int ranks)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = run_trial_in(context, t, ranks);
    ith_context_destroy(&context);
    return status;
}

static inline void expect_refusal(trial *t, int ranks, ith_status status, const char *word)
{
    ith_status seen = run_trial(t, ranks);
    if (seen != status || !strstr(t->sentences[0], word))
        print_error("expected '%s': %s\n", word, t->sentences[0]);
    assert_int_equal(seen, status);
    assert_non_null(strstr(t->sentences[0], word));
}

/* A function that changes a problem and options. */
#define SPOIL(name, change)                                                                                            \
    static void name(ith_attn_problem *p, ith_attn_options *o)                                                         \
    {                                                                                                                  \
        (void)p, (void)o;                                                                                              \
        change;                                                                                                        \
    }

/* The same on one to three ranks, of which all or any one is spoilt. */
static inline void expect_refusals(trial_spoiler spoil, const char *word)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int odd = -1; odd < ranks; odd++) {
            trial t = new_trial();
            t.odd_rank = odd;
            t.spoil = spoil;
            expect_refusal(&t, ranks, ITH_ERR_ARGUMENT, word);
        }
}

#endif
