/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca verify: every legal plan of a problem against a float64 softmax. */
#ifndef ITH_CLI_VERIFY_H
#define ITH_CLI_VERIFY_H

#include "../oracle/oracle.h"
#include "attend_whole.h"

typedef struct ith_verify_plan {
    ith_attn_options options;
    ith_plan_info info;  /* as predicted */
    double error, bound; /* relative L2 error of o, of the head or of all heads, that comes nearest to its bound */
    double lse_error;    /* in units of max(1, |lse|), like lse_bound */
    bool repeats;        /* a second execution gives the same bits */
    bool has_single, is_single; /* whether its bits must equal the bits of a single rank, and whether they do */
    bool passed;
    char why[256]; /* the sentence of an execution that failed; "" otherwise */
} ith_verify_plan;

/* One problem, its exact result and its plans. */
typedef struct ith_verify {
    ith_context *context;
    int ranks, threads;
    const char *kernel; /* the only kernel to verify; NULL: all that are usable */
    uint64_t seed;
    double deviation;                      /* of the logits in the last head */
    ith_attend_whole first, again, single; /* two executions and the single rank; `first` owns the inputs */
    ith_oracle_rows exact, found;
    double *bounds, lse_bound; /* of the error of each head [B H], and of lse */
    ith_verify_plan *plans;
    int count, room;
} ith_verify;

/* Makes random tensors, the exact result and the bounds for v->first.problem; the caller has set the members above
 * `first`. Prints errors and returns an exit status; ith_verify_free is needed in any case. */
int ith_verify_prepare(ith_verify *v);
/* Fills in all legal plans that differ. The plan of a single rank comes before the plans that are compared with it. */
int ith_verify_list(ith_verify *v);
/* Executes plan number `index` twice and fills in its verdict. */
void ith_verify_run(ith_verify *v, int index);
void ith_verify_free(ith_verify *v);

int ith_verify_failures(const ith_verify *v);

#endif
