/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on the transport: results have the bits of one rank, a cancellation reaches all ranks, a refusal leaves the
 * group usable. Every rank has the whole tensors and computes the expected result alone. */
#include "suite.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 6, DIM = 32, LENGTH = 203, ROW = HEADS * DIM };

typedef struct attention_case {
    ith_strategy strategy;
    int chunks;
    int64_t length;
} attention_case;

static float *numbers(int64_t count, uint32_t seed)
{
    float *all = malloc((size_t)count * sizeof *all);
    for (int64_t i = 0; all && i < count; i++)
        all[i] = (float)(suite_mix(seed, (uint32_t)i) % 2000) / 1000.0f - 1.0f;
    return all;
}

/* The whole tensors, the result of one rank, and this rank's share. */
typedef struct whole {
    float *q, *k, *v, *expected, *o; /* o: this rank's share */
    ith_attn_problem problem;
    ith_attn_tensors share;
    int64_t first, rows;
} whole;

static ith_status whole_create(ith_context *context, ith_comm *comm, int64_t length, whole *w)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = length;
    problem.dtype = ITH_F32;
    w->problem = problem;
    w->q = numbers(length * ROW, 1), w->k = numbers(length * ROW, 2), w->v = numbers(length * ROW, 3);
    w->expected = numbers(length * ROW, 0), w->o = numbers(length * ROW, 0);
    SUITE_CHECK(context, w->q && w->k && w->v && w->expected && w->o);
    ith_share(length, ith_comm_size(comm), ith_comm_rank(comm), &w->first, &w->rows);
    tensors.q = w->q + w->first * ROW, tensors.k = w->k + w->first * ROW, tensors.v = w->v + w->first * ROW;
    tensors.o = w->o;
    w->share = tensors;
    return ITH_OK;
}

static void whole_destroy(whole *w)
{
    free(w->q), free(w->k), free(w->v), free(w->expected), free(w->o);
}

/* Fills w->expected with a plan of one rank. */
static ith_status compute_alone(ith_context *context, whole *w)
{
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_plan *plan = NULL;
    options.threads = 1;
    tensors.q = w->q, tensors.k = w->k, tensors.v = w->v, tensors.o = w->expected;
    SUITE_TRY(context, ith_plan_create(context, &w->problem, &options, NULL, &plan));
    SUITE_TRY(context, ith_plan_execute(plan, &tensors));
    ith_plan_destroy(&plan);
    return ITH_OK;
}

/* Ulysses must give the same bits as one rank. A ring merges partial results, so it need only agree to 1e-5. */
static ith_status attend_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    const attention_case *c = user;
    whole w;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plan = NULL;
    SUITE_TRY(context, whole_create(context, comm, c->length, &w));
    SUITE_TRY(context, compute_alone(context, &w));
    options.strategy = c->strategy, options.chunks = c->chunks, options.threads = 1;
    SUITE_TRY(context, ith_plan_create(context, &w.problem, &options, comm, &plan));
    for (int i = 0; i < 2; i++) {
        SUITE_TRY(context, ith_plan_execute(plan, &w.share));
        const float *expected = w.expected + w.first * ROW;
        if (c->strategy == ITH_STRATEGY_ULYSSES)
            SUITE_CHECK(context, !memcmp(w.o, expected, (size_t)(w.rows * ROW) * sizeof *w.o));
        for (int64_t k = 0; k < w.rows * ROW; k++)
            SUITE_CHECK(context, fabsf(w.o[k] - expected[k]) < 1e-5f);
    }
    ith_plan_destroy(&plan);
    whole_destroy(&w);
    return ITH_OK;
}

static int plans_have_the_bits_of_one_rank(const suite_subject *s)
{
    static const attention_case cases[] = {{ITH_STRATEGY_ULYSSES, 1, LENGTH},
                                           {ITH_STRATEGY_ULYSSES, 2, LENGTH},
                                           {ITH_STRATEGY_RING, 1, LENGTH},
                                           {ITH_STRATEGY_RING, 1, 2}};
    int failed = 0;
    for (int i = 0; i < 4; i++)
        for (int ranks = 2; ranks <= suite_least(s->ranks, 3); ranks++)
            failed += s->run(s->self, ranks, attend_in_rank, (void *)&cases[i]);
    attention_case mixed = {ITH_STRATEGY_ULYSSES_RING, 1, LENGTH};
    return failed + (s->ranks < 4 ? 0 : s->run(s->self, 4, attend_in_rank, &mixed));
}

static void *cancel_soon(void *plan)
{
    suite_nap(0.03);
    ith_plan_cancel(plan);
    return NULL;
}

/* One head on two ranks: rank 0 computes, and rank 1 only waits for it. Rank 1 cancels meanwhile. */
static ith_status cancel_while_waiting(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    whole w;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plan = NULL;
    pthread_t thread;
    SUITE_TRY(context, whole_create(context, comm, 900, &w));
    w.problem.heads = 1, w.problem.head_dim = ROW;
    options.strategy = ITH_STRATEGY_ULYSSES, options.threads = 1, options.kernel = "f32_ref";
    SUITE_TRY(context, ith_plan_create(context, &w.problem, &options, comm, &plan));
    double begin = suite_seconds();
    SUITE_TRY(context, ith_plan_execute(plan, &w.share));
    double whole_seconds = suite_seconds() - begin;
    SUITE_TRY(context, ith_comm_barrier(comm));
    begin = suite_seconds();
    if (ith_comm_rank(comm) == 1)
        SUITE_CHECK(context, !pthread_create(&thread, NULL, cancel_soon, plan));
    const ith_status status = ith_plan_execute(plan, &w.share);
    const bool early = suite_seconds() - begin < 0.1 + whole_seconds / 2;
    if (ith_comm_rank(comm) == 1)
        pthread_join(thread, NULL);
    ith_plan_destroy(&plan); /* before the checks: another attempt may follow */
    whole_destroy(&w);
    SUITE_CHECK(context, status == ITH_ERR_INTERRUPTED && strstr(ith_context_error(context), "rank 1: cancelled"));
    SUITE_CHECK(context, early);
    return ITH_OK;
}

/* The last rank cancels. The execution ends with the same status on all ranks, and the next execution works. */
static ith_status cancel_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    whole w;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plan = NULL;
    pthread_t thread;
    bool cancels = ith_comm_rank(comm) == ith_comm_size(comm) - 1;
    SUITE_TRY(context, whole_create(context, comm, 400, &w));
    SUITE_TRY(context, compute_alone(context, &w));
    options.strategy = ITH_STRATEGY_ULYSSES, options.threads = 1, options.kernel = "f32_ref";
    SUITE_TRY(context, ith_plan_create(context, &w.problem, &options, comm, &plan));
    SUITE_TRY(context, ith_comm_barrier(comm));
    double begin = suite_seconds();
    if (cancels)
        SUITE_CHECK(context, !pthread_create(&thread, NULL, cancel_soon, plan));
    ith_status status = ITH_OK;
    for (int i = 0; i < 10000 && !status; i++)
        status = ith_plan_execute(plan, &w.share);
    SUITE_CHECK(context, status == ITH_ERR_INTERRUPTED && suite_seconds() - begin < 60);
    SUITE_CHECK(context, strstr(ith_context_error(context), "cancelled"));
    SUITE_TRY(context, ith_plan_execute(plan, &w.share));
    for (int64_t k = 0; k < w.rows * ROW; k++)
        SUITE_CHECK(context, fabsf(w.o[k] - w.expected[w.first * ROW + k]) < 1e-4f);
    if (cancels)
        pthread_join(thread, NULL);
    ith_plan_destroy(&plan);
    whole_destroy(&w);
    return ITH_OK;
}

static int cancelling_reaches_all(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 2; ranks <= suite_least(s->ranks, 3); ranks++)
        failed += s->run(s->self, ranks, cancel_in_rank, NULL);
    int late = s->notifies ? s->run(s->self, 2, cancel_while_waiting, NULL) : 0;
    for (int n = 0; n < 5 && late; n++) /* a busy machine may hold up the rank that cancels */
        late = s->run(s->self, 2, cancel_while_waiting, NULL);
    return failed + late;
}

/* If one rank refuses its arguments, or if ranks execute different plans, all ranks get an error, and the group lives
 * on. */
static ith_status refuse_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    whole w;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plans[2] = {NULL, NULL};
    int rank = ith_comm_rank(comm);
    SUITE_TRY(context, whole_create(context, comm, LENGTH, &w));
    options.threads = 1;
    for (int i = 0; i < 2; i++)
        SUITE_TRY(context, ith_plan_create(context, &w.problem, &options, comm, &plans[i]));
    const void *k = w.share.k;
    w.share.k = rank == 1 ? NULL : k;
    SUITE_CHECK(context, ith_plan_execute(plans[0], &w.share) == ITH_ERR_ARGUMENT);
    SUITE_CHECK(context, strstr(ith_context_error(context), "k is NULL"));
    w.share.k = k;
    SUITE_CHECK(context, ith_plan_execute(plans[rank != 0], &w.share) == ITH_ERR_ARGUMENT);
    SUITE_CHECK(context, strstr(ith_context_error(context), "in the same order"));
    SUITE_TRY(context, ith_plan_execute(plans[1], &w.share));
    for (int i = 0; i < 2; i++)
        ith_plan_destroy(&plans[i]);
    whole_destroy(&w);
    return ITH_OK;
}

static int a_refusal_leaves_the_group_alive(const suite_subject *s)
{
    return s->run(s->self, suite_least(s->ranks, 3), refuse_in_rank, NULL);
}

const suite_test suite_plans[] = {
    {"plans_have_the_bits_of_one_rank", plans_have_the_bits_of_one_rank},
    {"cancelling_reaches_all", cancelling_reaches_all},
    {"a_refusal_leaves_the_group_alive", a_refusal_leaves_the_group_alive},
    {NULL, NULL},
};
