/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a problem and their verdicts. Each plan is executed twice. Its results are compared with float64, with
 * the results of its second execution, and with the results of a single rank. */
#include "verify.h"

#include "../attend/attend_device.h"
#include "../attend/attend_transfer.h"
#include "../cli.h"
#include "../launch/launch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* f32 rounds logits, which are up to 128 in base 2, by 2^-18 and more. This error is also the relative error of each p.
 * With few keys the error of one plain implementation may be much smaller by chance. The errors of all p are
 * independent, and o is a mean over keys, so the error of o falls with the root of their number. */
#define FEW_KEYS_BOUND(keys) (0x1p-17 / sqrt((double)(keys)))
/* fixed_m subtracts an offset of up to 192 in base 2 (the gate) from logits of up to 192. f32 rounds the difference, of
 * up to 384, by 2^-16, and then lse by half of that. */
#define FIXED_M_LSE_BOUND 0x1p-15
/* The relative error of n numbers is a root of the mean of n squares, and scatters by 1 / sqrt(2 n) of itself. The
 * error of a plain implementation scatters as much, so the ratio of the two scatters by 1 / sqrt(n). Bounds grow by
 * eight times this share, which matters for few numbers only. */
#define SCATTER 8

/* ---- The problem ----------------------------------------------------------------------------------------------- */

/* Gives `whole` the problem and the inputs of `inputs`, and allocates memory for its results. */
static bool make_results(const ith_attend_whole *inputs, ith_attend_whole *whole)
{
    whole->problem = inputs->problem;
    whole->tensors = inputs->tensors;
    return ith_attend_own_results(whole);
}

/* By how much a bound on the error of n numbers grows because their errors scatter. */
static double scatter(int64_t n)
{
    return 1 + SCATTER / sqrt((double)n);
}

/* Fills in the bounds. The bound of a head is max(2 * error of a plain implementation, error of rounding o, bound of
 * few keys) * scatter. */
static bool find_bounds(ith_verify *v)
{
    static const double least_lse_bound = 1e-5;
    const ith_attn_problem *p = &v->first.problem;
    double rounding = p->dtype == ITH_BF16 ? 0x1p-9 : p->dtype == ITH_F16 ? 0x1p-12 : 0x1p-22;
    const double least = p->kv_len ? fmax(rounding, FEW_KEYS_BOUND(p->kv_len)) : rounding;
    ith_oracle_rows plain;
    v->bounds = malloc((size_t)(p->batch * p->heads) * sizeof *v->bounds);
    bool good = ith_oracle_rows_create(p, p->q_len, &plain) &&
                ith_oracle_plain(&v->first.problem, &v->first.tensors, &plain) && v->bounds;
    for (int64_t n = 0; good && n < p->batch * p->heads; n++)
        v->bounds[n] =
            fmax(2 * ith_oracle_head_error(p, &plain, &v->exact, n), least) * scatter(p->q_len * p->head_dim);
    if (good)
        v->lse_bound = fmax(2 * ith_oracle_lse_error(p, &plain, &v->exact), least_lse_bound);
    ith_oracle_rows_free(&plain);
    return good;
}

int ith_verify_prepare(ith_verify *v)
{
    const ith_attn_problem *p = &v->first.problem;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    if (ith_plan_predict(v->context, p, NULL, v->launch->all_ranks, 0, ith_launch_is_alone(v->launch), &info))
        return ith_cli_error("%s", ith_context_error(v->context));
    int code = ith_attend_make_random(v->context, v->seed, v->deviation, &v->first);
    if (code)
        return code;
    bool good = make_results(&v->first, &v->again) && make_results(&v->first, &v->single);
    if (good && v->launch->leads)
        good = ith_oracle_rows_create(p, p->q_len, &v->exact) && ith_oracle_rows_create(p, p->q_len, &v->found) &&
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

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* Whether two plans made the same choices. */
static bool same_plan(const ith_plan_info *a, const ith_plan_info *b)
{
    return a->strategy == b->strategy && a->ranks == b->ranks && a->ulysses == b->ulysses && a->ring == b->ring &&
           a->direction == b->direction && a->chunks == b->chunks && a->folded == b->folded &&
           a->softmax == b->softmax && a->smoothed == b->smoothed && a->exchange == b->exchange &&
           !strcmp(a->kernel, b->kernel);
}

/* Adds a plan to v->plans unless it is illegal or equal to an earlier one. The context keeps the sentence about an
 * illegal plan. */
static int add(ith_verify *v, const ith_attn_options *options, int ranks)
{
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    if (ith_plan_predict(v->context, &v->first.problem, options, ranks, 0, ith_launch_is_alone(v->launch), &info))
        return ITH_EXIT_DONE;
    for (int i = 0; i < v->count; i++)
        if (same_plan(&v->plans[i].info, &info))
            return ITH_EXIT_DONE;
    if (v->count == v->room) {
        int room = v->room ? 2 * v->room : 256;
        ith_verify_plan *plans = realloc(v->plans, (size_t)room * sizeof *plans);
        if (!plans)
            return ith_cli_error("there is no memory for %d plans", room);
        v->plans = plans;
        v->room = room;
    }
    v->plans[v->count++] = (ith_verify_plan){.options = *options, .info = info};
    return ITH_EXIT_DONE;
}

/* Adds the plans of a strategy on one mesh, with every direction, 1 to 3 chunks, and every fold and exchange. The
 * library may lower the number of chunks; plans that are then equal are added once. */
static int add_mesh(ith_verify *v, ith_attn_options options)
{
    bool exchanges = options.ulysses > 1, travels = options.ring > 1;
    int code = ITH_EXIT_DONE;
    for (int n = 0; !code && n < 2 * 3 * 2 * 3; n++) {
        bool bidir = n % 2, one_by_one = n / 6 % 2;
        int chunks = n / 2 % 3 + 1;
        if ((bidir && !travels) || (chunks > 1 && !exchanges) ||
            (one_by_one && (!exchanges || v->first.problem.batch == 1)))
            continue;
        options.direction = bidir ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
        options.chunks = chunks;
        options.fold = one_by_one ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
        options.exchange = (ith_exchange_mode)(ITH_EXCHANGE_IN_PLACE + n / 12);
        code = add(v, &options, v->launch->all_ranks);
    }
    return code;
}

/* Adds the plans of every mesh: ulysses_ring on all meshes, ulysses and ring on the meshes with a single axis. */
static int add_meshes(ith_verify *v, ith_attn_options options)
{
    int code = ITH_EXIT_DONE;
    for (int ulysses = v->launch->all_ranks; !code && v->launch->all_ranks > 1 && ulysses >= 1; ulysses--) {
        if (v->launch->all_ranks % ulysses)
            continue;
        options.ulysses = ulysses, options.ring = v->launch->all_ranks / ulysses;
        options.strategy = ulysses > 1 ? ITH_STRATEGY_ULYSSES : ITH_STRATEGY_RING;
        if (ulysses == 1 || ulysses == v->launch->all_ranks)
            code = add_mesh(v, options);
        options.strategy = ITH_STRATEGY_ULYSSES_RING;
        if (!code)
            code = add_mesh(v, options);
    }
    return code;
}

/* Adds the plans of one kernel with three kinds of softmax: online, fixed_m, and fixed_m without smoothing. */
static int add_kernel(ith_verify *v, const char *kernel)
{
    int code = ITH_EXIT_DONE;
    for (int n = 0; !code && n < 3; n++) {
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        options.kernel = kernel;
        options.softmax = n ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        options.smooth = n == 2 ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
        options.strategy = ITH_STRATEGY_SINGLE;
        code = add(v, &options, 1);
        ith_launch_place(v->launch, &options);
        if (!code)
            code = add_meshes(v, options);
    }
    return code;
}

int ith_verify_list(ith_verify *v)
{
    const char *name;
    bool usable, known = !v->kernel, runs = known;
    int code = ITH_EXIT_DONE;
    for (int i = 0; !code && (name = ith_kernel_list(v->context, i, &usable)); i++)
        if (!v->kernel || !strcmp(name, v->kernel)) {
            known = true, runs |= usable;
            code = usable ? add_kernel(v, name) : code;
        }
    if (!code && !known)
        return ith_cli_error("there is no kernel '%s'; 'ithaca info' lists all kernels", v->kernel);
    if (!code && !runs)
        return ith_cli_error("this machine cannot run the kernel %s; 'ithaca info' lists the kernels that it can run",
                             v->kernel);
    if (!code && !v->count)
        return ith_cli_error("no plan is legal: %s", ith_context_error(v->context));
    return code;
}

/* ---- Execution ------------------------------------------------------------------------------------------------- */

static size_t o_bytes(const ith_attend_whole *whole)
{
    return (size_t)(whole->problem.batch * whole->problem.o_batch_stride * ith_dtype_bytes(whole->problem.dtype));
}

static size_t lse_bytes(const ith_attend_whole *whole)
{
    return (size_t)(whole->problem.batch * whole->problem.heads * whole->problem.q_len) * sizeof(float);
}

/* Fills o and lse with NaN, so that an element that the plan does not write is noticed. */
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

/* Keeps the error of o whose ratio to its bound is the largest so far, and the bound. */
static void note_error(ith_verify_plan *plan, double error, double bound)
{
    if (plan->bound > 0 && error / bound <= plan->error / plan->bound)
        return;
    plan->error = error;
    plan->bound = bound;
}

/* Compares the error of o in each head with the head's bound. Then compares the error over all heads that have moderate
 * logits with a limit that depends on the element type. */
static void judge_errors(ith_verify *v, ith_verify_plan *plan)
{
    static const double moderate = 30; /* heads whose lse is below this have moderate logits */
    const ith_attn_problem *p = &v->first.problem;
    const int64_t rows = p->batch * p->heads * p->q_len;
    const double limit = p->dtype == ITH_BF16 ? 0x1p-8 : p->dtype == ITH_F16 ? 0x1p-10 : 5e-6;
    ith_oracle_copy_results(&v->first.problem, &v->first.tensors, &v->found);
    note_error(plan, ith_oracle_error(p, &v->found, &v->exact, moderate), limit * scatter(rows * p->head_dim));
    const bool offset = plan->info.softmax == ITH_SOFTMAX_FIXED_M;
    for (int64_t n = 0; n < p->batch * p->heads; n++)
        note_error(plan, ith_oracle_head_error(p, &v->found, &v->exact, n), v->bounds[n]);
    plan->lse_error = ith_oracle_lse_error(p, &v->found, &v->exact);
    plan->lse_bound = (offset ? fmax(v->lse_bound, FIXED_M_LSE_BOUND) : v->lse_bound) * scatter(rows);
}

/* Fills in the verdict of a plan whose two executions are in v->first and v->again. */
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
    plan->passed = plan->error <= plan->bound && plan->lse_error <= plan->lse_bound && plan->repeats &&
                   (plan->is_single || !plan->has_single);
}

/* Executes a plan, with its results in `whole`. */
static ith_status execute(const ith_attend_whole *whole, ith_context *context, ith_comm *comm, ith_plan **plan,
                          const ith_attn_options *options)
{
    ith_attend_placed placed;
    ith_status status =
        ith_launch_fail(comm, ith_attend_place(context, whole, ith_comm_size(comm), ith_comm_rank(comm), &placed));
    if (status)
        return status;
    if (!*plan)
        status = ith_plan_create(context, &placed.problem, options, comm, plan);
    if (!status)
        status = ith_launch_execute(comm, *plan, &placed.tensors);
    if (!status)
        status = ith_launch_fail(comm, ith_attend_bring_back(&placed));
    ith_attend_leave(&placed);
    return status;
}

/* Executes a plan twice on `comm`, with results in v->first and in v->again. comm: NULL for a single rank. */
static ith_status execute_twice(ith_verify *v, ith_context *context, ith_comm *comm, ith_attn_options options)
{
    ith_plan *plan = NULL;
    if (!comm)
        options.threads = v->threads;
    ith_status status = execute(&v->first, context, comm, &plan, &options);
    if (!status)
        status = execute(&v->again, context, comm, &plan, &options);
    ith_plan_destroy(&plan);
    return status;
}

/* A part of ith_verify_run that rank 0 does alone while the other ranks wait. */
typedef struct verify_part {
    ith_verify *v;
    ith_verify_plan *plan;
    ith_context *context;
    ith_status status;
} verify_part;

static void execute_single(void *user)
{
    verify_part *part = user;
    part->status = execute_twice(part->v, part->context, NULL, part->plan->options);
}

/* Gathers lse and judges the plan, or notes why it could not be executed. */
static void conclude(void *user)
{
    const verify_part *part = user;
    ith_verify_plan *plan = part->plan;
    if (part->status) {
        snprintf(plan->why, sizeof plan->why, "%s", ith_context_error(part->context));
        plan->error = plan->lse_error = INFINITY;
        return;
    }
    ith_attend_gather_lse(&part->v->first, plan->info.ranks);
    ith_attend_gather_lse(&part->v->again, plan->info.ranks);
    judge(part->v, plan);
}

ith_status ith_verify_run(ith_verify *v, ith_context *context, ith_comm *comm, int index)
{
    verify_part part = {v, &v->plans[index], context, ITH_OK};
    int rank = ith_comm_rank(comm);
    if (ith_launch_is_first(comm, rank))
        poison(&v->first), poison(&v->again);
    if (part.plan->info.ranks > 1) {
        part.status = execute_twice(v, context, comm, part.plan->options);
        if (!part.status)
            part.status = ith_attend_gather(&v->first, comm);
        if (!part.status)
            part.status = ith_attend_gather(&v->again, comm);
        if (part.status == ITH_ERR_INTERRUPTED)
            return part.status;
    } else if (rank == 0) {
        ith_launch_alone(comm, execute_single, &part);
    }
    ith_status group = ith_comm_barrier(comm); /* fails if the plan's failure has ended the group */
    if (!group && rank == 0)
        ith_launch_alone(comm, conclude, &part);
    return group;
}

int ith_verify_failures(const ith_verify *v)
{
    int failures = 0;
    for (int i = 0; i < v->count; i++)
        failures += !v->plans[i].passed;
    return failures;
}
