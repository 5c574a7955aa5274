/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt to plan and execute on every rank of a group, with what each rank was told. */
#ifndef ITH_TESTS_PLAN_TRIAL_H
#define ITH_TESTS_PLAN_TRIAL_H

#include "base/context.h"

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

trial new_trial(void);

/* Plans, and executes on tensors of ones, whole on every rank so that no share reaches past their end. */
ith_status trial_in_rank(ith_context *context, ith_comm *comm, void *user);

/* The status of all ranks, which get the same one and the same sentence. */
ith_status run_trial_in(ith_context *context, trial *t, int ranks);

ith_status run_trial(trial *t, int ranks);

void expect_refusal(trial *t, int ranks, ith_status status, const char *word);

/* A function that changes a problem and options. */
#define SPOIL(name, change)                                                                                            \
    static void name(ith_attn_problem *p, ith_attn_options *o)                                                         \
    {                                                                                                                  \
        (void)p, (void)o;                                                                                              \
        change;                                                                                                        \
    }

/* The same on one to three ranks, of which all or any one is spoilt. */
void expect_refusals(trial_spoiler spoil, const char *word);

#endif
