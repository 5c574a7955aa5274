/* SPDX-License-Identifier: Apache-2.0 */
/* An attempt to make a plan and execute it on every rank of a group, and the status and the sentence that each rank
 * gets. */
#ifndef ITH_TESTS_PLAN_TRIAL_H
#define ITH_TESTS_PLAN_TRIAL_H

#include "base/context.h"

#define TRIAL_RANKS 6

#define TRIAL_NUMBERS 2000

typedef void (*trial_spoiler)(ith_attn_problem *problem, ith_attn_options *options);

typedef struct trial {
    ith_attn_problem problem;
    ith_attn_options options;
    int odd_rank; /* the rank whose arguments `spoil` and spoil_tensors change; -1: the arguments of all ranks */
    trial_spoiler spoil;
    void (*spoil_tensors)(ith_attn_tensors *tensors);
    bool execute, may_write; /* may_write: a call that fails may have written o, because the exchange of results had
                              * begun */
    char plan[1024];
    ith_plan_info info; /* of rank 0 */
    ith_status seen[TRIAL_RANKS];
    char sentences[TRIAL_RANKS][ITH_ERROR_BYTES];
} trial;

trial new_trial(void);

/* An ith_rank_fn; user: a trial. Makes the plan, and executes it on tensors of ones. Every rank has whole tensors, so
 * that no share reaches beyond their end. */
ith_status trial_in_rank(ith_context *context, ith_comm *comm, void *user);

/* Runs the trial. Checks that all ranks get the same status and the same sentence, and returns the status. */
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

/* Expects the refusal with ITH_ERR_ARGUMENT on one to three ranks, if the arguments of all ranks or of any single rank
 * are changed. */
void expect_refusals(trial_spoiler spoil, const char *word);

#endif
