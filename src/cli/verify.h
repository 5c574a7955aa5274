/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca verify: every legal plan of a problem against a float64 softmax. */
#ifndef ITH_CLI_VERIFY_H
#define ITH_CLI_VERIFY_H

#include "../oracle/oracle.h"
#include "attend_whole.h"

typedef struct ith_verify_plan {
    ith_attn_options options;
    ith_plan_info info;         /* as predicted */
    double error, bound;        /* relative L2 of o, of one head or of all, where it comes nearest to its bound */
    double lse_error;           /* in units of max(1, |lse|), as the bound is */
    bool repeats;               /* a second execution gives the same bits */
    bool has_single, is_single; /* whether it should have the bits of the single rank, and has */
    bool passed;
    char why[256]; /* it failed; "" if a figure above says so */
} ith_verify_plan;

/* One problem with all its plans. */
typedef struct ith_verify {
    ith_context *context;
    int ranks, threads;
    const char *kernel; /* only this one; NULL: all that are usable */
    uint64_t seed;
    double deviation;                      /* of the logits in the last head */
    ith_attend_whole first, again, single; /* results of two executions and of the single rank; inputs are first's */
    ith_oracle_rows exact, found;
    double *bounds, lse_bound; /* of the error in each head problem, and of lse */
    ith_verify_plan *plans;
    int count, room;
} ith_verify;

/* Makes the problem's tensors and what they should come to; v->first.problem and the members above `first` are set.
 * Prints what is wrong and returns an exit status; free in any case. */
int ith_verify_prepare(ith_verify *v);
/* Fills in plans: those that differ and are legal, each single plan before those that are compared with it. */
int ith_verify_list(ith_verify *v);
/* Executes plan number `index` and judges it. */
void ith_verify_run(ith_verify *v, int index);
void ith_verify_free(ith_verify *v);

int ith_verify_failures(const ith_verify *v);

#endif
