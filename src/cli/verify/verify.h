/* SPDX-License-Identifier: Apache-2.0 */
/* The state of ithaca verify, which compares every legal plan of a problem with a float64 softmax. */
#ifndef ITH_CLI_VERIFY_H
#define ITH_CLI_VERIFY_H

#include "../../oracle/oracle.h"
#include "../attend/attend_whole.h"
#include "../launch/launch.h"

/* One plan and its verdict. */
typedef struct ith_verify_plan {
    ith_attn_options options;
    ith_plan_info info; /* the plan as ith_plan_predict describes it */
    /* the relative L2 error of o that comes closest to its bound or exceeds it most; its bound */
    double error, bound;
    double lse_error;           /* largest error of lse, divided by max(1, |lse|) */
    double lse_bound;           /* the largest that is allowed */
    bool repeats;               /* a second execution gave the same bits */
    bool has_single, is_single; /* whether the plan must give the bits of a single rank; whether it does */
    bool passed;
    char why[256]; /* the error message of an execution that failed; "" otherwise */
} ith_verify_plan;

/* One problem, its exact result and its plans. */
typedef struct ith_verify {
    ith_context *context;
    const ith_launch *launch;
    int threads;        /* of this process */
    const char *kernel; /* the only kernel to verify; NULL: all that are usable */
    uint64_t seed;
    double deviation;                      /* standard deviation of the logits in the last head */
    ith_attend_whole first, again, single; /* two executions of a plan, and a single rank; `first` owns the inputs */
    ith_oracle_rows exact, found;          /* results in float64; results of a plan */
    double *bounds, lse_bound; /* largest allowed error of o in each head [B H], and of lse with a running maximum */
    ith_verify_plan *plans;
    int count, room; /* number of plans; number of plans that fit into `plans` */
} ith_verify;

/* Makes random tensors for v->first.problem, and in the process of rank 0 the exact result and the bounds; the caller
 * has set the members above `first`. Prints errors and returns an exit status; ith_verify_free is needed in any case.
 */
int ith_verify_prepare(ith_verify *v);
/* Fills v->plans with every legal plan, each once. The plan of a single rank comes before the plans that are compared
 * with it. */
int ith_verify_list(ith_verify *v);
/* Executes plan number `index` twice, on all ranks, and fills in its verdict in the process of rank 0. Collective.
 * Returns a failure that ends the command; the failure of a plan is its verdict. */
ith_status ith_verify_run(ith_verify *v, ith_context *context, ith_comm *comm, int index);
void ith_verify_free(ith_verify *v);

/* The number of plans that did not pass. */
int ith_verify_failures(const ith_verify *v);

#endif
