/* SPDX-License-Identifier: Apache-2.0 */
/* One plan: executed twice, compared with float64, with itself and with the single rank. */
#include "verify.h"

#include "attend_random.h"
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The problem ----------------------------------------------------------------------------------------------- */

static bool make_results(const ith_attend_whole *inputs, ith_attend_whole *whole)
{
    whole->problem = inputs->problem;
    whole->tensors = inputs->tensors;
    return ith_attend_own_results(whole);
}

/* In every head at most twice the plain implementation's error, or what rounding o alone may cost. */
static bool find_bounds(ith_verify *v)
{
    static const double least_lse_bound = 1e-5;
    const ith_attn_problem *p = &v->first.problem;
    double rounding = p->dtype == ITH_BF16 ? 0x1p-9 : p->dtype == ITH_F16 ? 0x1p-12 : 0x1p-22;
    ith_oracle_rows plain;
    v->bounds = malloc((size_t)(p->batch * p->heads) * sizeof *v->bounds);
    bool good = ith_oracle_rows_create(p, p->q_len, &plain) &&
                ith_oracle_plain(&v->first.problem, &v->first.tensors, &plain) && v->bounds;
    for (int64_t n = 0; good && n < p->batch * p->heads; n++)
        v->bounds[n] = fmax(2 * ith_oracle_head_error(p, &plain, &v->exact, n), rounding);
    if (good)
        v->lse_bound = fmax(2 * ith_oracle_lse_error(p, &plain, &v->exact), least_lse_bound);
    ith_oracle_rows_free(&plain);
    return good;
}

int ith_verify_prepare(ith_verify *v)
{
    const ith_attn_problem *p = &v->first.problem;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    if (ith_plan_predict(v->context, p, NULL, v->ranks, 0, true, &info))
        return ith_cli_error("%s", ith_context_error(v->context));
    int code = ith_attend_make_random(v->context, v->seed, v->deviation, &v->first);
    if (code)
        return code;
    bool good = make_results(&v->first, &v->again) && make_results(&v->first, &v->single) &&
                ith_oracle_rows_create(p, p->q_len, &v->exact) && ith_oracle_rows_create(p, p->q_len, &v->found) &&
                ith_oracle_exact(&v->first.problem, &v->first.tensors, &v->exact) && find_bounds(v);
    return good ? ITH_EXIT_DONE : ith_cli_error("there is no memory for the results in float64");
}

void ith_verify_free(ith_verify *v)
{
    ith_attend_free(&v->first), ith_attend_free(&v->again), ith_attend_free(&v->single);
    ith_oracle_rows_free(&v->exact), ith_oracle_rows_free(&v->found);
    free(v->bounds);
    free(v->plans);
    *v = (ith_verify){.count = 0};
}

/* ---- Execution ------------------------------------------------------------------------------------------------- */

typedef struct verify_job {
    ith_verify *v;
    const ith_attn_options *options;
} verify_job;

static ith_status execute_twice(ith_context *context, ith_comm *comm, void *user)
{
    const verify_job *job = user;
    ith_attn_tensors first = ith_attend_share(&job->v->first, ith_comm_size(comm), ith_comm_rank(comm));
    ith_attn_tensors again = ith_attend_share(&job->v->again, ith_comm_size(comm), ith_comm_rank(comm));
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &job->v->first.problem, job->options, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &first);
    if (!status)
        status = ith_plan_execute(plan, &again);
    ith_plan_destroy(&plan);
    return status;
}

static size_t o_bytes(const ith_attend_whole *whole)
{
    return (size_t)(whole->problem.batch * whole->problem.o_batch_stride * ith_dtype_bytes(whole->problem.dtype));
}

static size_t lse_bytes(const ith_attend_whole *whole)
{
    return (size_t)(whole->problem.batch * whole->problem.heads * whole->problem.q_len) * sizeof(float);
}

/* NaN everywhere: what is not written shows. */
static void poison(ith_attend_whole *whole)
{
    memset(whole->tensors.o, 0xff, o_bytes(whole));
    memset(whole->lse_shares, 0xff, lse_bytes(whole));
}

static bool same_bits(const ith_attend_whole *a, const ith_attend_whole *b)
{
    return !memcmp(a->tensors.o, b->tensors.o, o_bytes(a)) && !memcmp(a->tensors.lse, b->tensors.lse, lse_bytes(a));
}

/* ---- Verdict --------------------------------------------------------------------------------------------------- */

/* Keeps the error that comes nearest to its bound. */
static void note_error(ith_verify_plan *plan, double error, double bound)
{
    if (plan->bound > 0 && error / bound <= plan->error / plan->bound)
        return;
    plan->error = error;
    plan->bound = bound;
}

/* Each head against its bound, and all together whose logits are moderate against the limit of the type. */
static void judge_errors(ith_verify *v, ith_verify_plan *plan)
{
    static const double moderate = 30;
    const ith_attn_problem *p = &v->first.problem;
    double limit = p->dtype == ITH_BF16 ? 0x1p-8 : p->dtype == ITH_F16 ? 0x1p-10 : 5e-6;
    ith_oracle_found(&v->first.problem, &v->first.tensors, &v->found);
    note_error(plan, ith_oracle_error(p, &v->found, &v->exact, moderate), limit);
    for (int64_t n = 0; n < p->batch * p->heads; n++)
        note_error(plan, ith_oracle_head_error(p, &v->found, &v->exact, n), v->bounds[n]);
    plan->lse_error = ith_oracle_lse_error(p, &v->found, &v->exact);
}

static void judge(ith_verify *v, ith_verify_plan *plan)
{
    judge_errors(v, plan);
    plan->repeats = same_bits(&v->first, &v->again);
    if (plan->info.strategy == ITH_STRATEGY_SINGLE) {
        memcpy(v->single.tensors.o, v->first.tensors.o, o_bytes(&v->first));
        memcpy(v->single.tensors.lse, v->first.tensors.lse, lse_bytes(&v->first));
    }
    plan->has_single = plan->info.strategy == ITH_STRATEGY_ULYSSES;
    plan->is_single = plan->has_single && same_bits(&v->first, &v->single);
    plan->passed = plan->error <= plan->bound && plan->lse_error <= v->lse_bound && plan->repeats &&
                   (plan->is_single || !plan->has_single);
}

void ith_verify_run(ith_verify *v, int index)
{
    ith_verify_plan *plan = &v->plans[index];
    verify_job job = {v, &plan->options};
    poison(&v->first), poison(&v->again);
    if (ith_run_ranks(v->context, plan->info.ranks, v->threads, execute_twice, &job)) {
        snprintf(plan->why, sizeof plan->why, "%s", ith_context_error(v->context));
        plan->error = plan->lse_error = INFINITY;
        return;
    }
    ith_attend_gather_lse(&v->first, plan->info.ranks);
    ith_attend_gather_lse(&v->again, plan->info.ranks);
    judge(v, plan);
}

int ith_verify_failures(const ith_verify *v)
{
    int failures = 0;
    for (int i = 0; i < v->count; i++)
        failures += !v->plans[i].passed;
    return failures;
}
