/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a sequence of 4,096 among four ranks of one process, each a thread with its own cores.
 *
 *     cc ranks_in_one_process.c $(pkg-config --cflags --libs ithaca) -lm -o ranks && ./ranks
 */
#include <ithaca/ithaca.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, DIM = 64, LENGTH = 4096, ROW = HEADS * DIM };

/* The whole tensors, [LENGTH, HEADS, DIM] each. If the ranks did not share memory, each would hold its share only. */
typedef struct whole {
    float *q, *k, *v, *o;
} whole;

/* Runs on each rank: makes a plan and executes it on this rank's rows of the whole tensors. */
static ith_status attend(ith_context *context, ith_comm *comm, void *user)
{
    const whole *all = user;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = HEADS;
    problem.head_dim = DIM;
    problem.q_len = problem.kv_len = LENGTH;
    problem.dtype = ITH_F32;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.strategy = ITH_STRATEGY_ULYSSES;

    int64_t first, rows;
    ith_share(LENGTH, ith_comm_size(comm), ith_comm_rank(comm), &first, &rows);
    ith_attn_tensors share = ITH_ATTN_TENSORS_INIT;
    share.q = all->q + first * ROW;
    share.k = all->k + first * ROW;
    share.v = all->v + first * ROW;
    share.o = all->o + first * ROW;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &problem, &options, comm, &plan);
    for (int step = 0; !status && step < 3; step++) /* a plan is made once and executed often */
        status = ith_plan_execute(plan, &share);
    ith_plan_destroy(&plan);
    return status;
}

static float *random_rows(void)
{
    float *x = malloc(sizeof(float) * LENGTH * ROW);
    for (int i = 0; x && i < LENGTH * ROW; i++)
        x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    return x;
}

int main(void)
{
    whole all = {random_rows(), random_rows(), random_rows(), random_rows()};
    ith_context *context = NULL;
    ith_status status = ITH_ERR_MEMORY;
    if (all.q && all.k && all.v && all.o)
        status = ith_context_create(NULL, &context);
    if (!status)
        status = ith_run_ranks(context, 4, 0, attend, &all);
    if (status)
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
    else
        printf("o[0] = %g\n", (double)all.o[0]);
    ith_context_destroy(&context);
    free(all.q), free(all.k), free(all.v), free(all.o);
    return status ? 1 : 0;
}
