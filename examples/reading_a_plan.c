/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the plan of a problem and its costs on any number of ranks, without having the ranks: the 720p attention of
 * Wan 2.2 A14B. Then makes a small plan, prints it, executes it and reads its counters.
 *
 *     cc reading_a_plan.c $(pkg-config --cflags --libs ithaca) -o plan && ./plan
 */
#include <ithaca/ithaca.h>

#include <stdio.h>
#include <stdlib.h>

/* Prints the predicted plan for 1, 4, 16 and 64 ranks that do not share memory. */
static ith_status predict(ith_context *context)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = 40;
    problem.head_dim = 128;
    problem.q_len = problem.kv_len = 75600;
    problem.dtype = ITH_BF16;
    for (int ranks = 1; ranks <= 64; ranks *= 4) {
        ith_plan_info info = ITH_PLAN_INFO_INIT;
        ith_status status = ith_plan_predict(context, &problem, NULL, ranks, 0, false, &info);
        if (status)
            return status;
        printf("%2d ranks: %s, ulysses %d x ring %d, kernel %s, %.1f MiB sent, %.1f MiB held\n", ranks,
               ith_strategy_name(info.strategy), info.ulysses, info.ring, info.kernel,
               (double)info.sent_bytes / 1048576, (double)info.memory_bytes / 1048576);
    }
    return ITH_OK;
}

/* Makes and executes a small plan on one rank, and prints the plan and its counters. */
static ith_status make_and_ask(ith_context *context)
{
    enum { HEADS = 2, DIM = 32, LENGTH = 300 };
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = HEADS;
    problem.head_dim = DIM;
    problem.q_len = problem.kv_len = LENGTH;
    float *x = calloc(2 * LENGTH * HEADS * DIM, sizeof *x); /* x serves as q, k and v; o follows */
    if (!x)
        return ITH_ERR_MEMORY;
    float *o = x + LENGTH * HEADS * DIM;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &problem, NULL, NULL, &plan);
    char text[1024];
    if (!status)
        puts(ith_plan_print(plan, text, sizeof text));
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    tensors.q = x;
    tensors.k = x;
    tensors.v = x;
    tensors.o = o;
    if (!status)
        status = ith_plan_execute(plan, &tensors);
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    if (!status)
        status = ith_plan_count(plan, &counters);
    if (!status)
        printf("executed %lld time in %.3f ms\n", (long long)counters.executions, counters.seconds * 1e3);
    ith_plan_destroy(&plan);
    free(x);
    return status;
}

int main(void)
{
    ith_context *context = NULL;
    ith_status status = ith_context_create(NULL, &context);
    if (!status)
        status = predict(context);
    if (!status)
        status = make_and_ask(context);
    if (status)
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
    ith_context_destroy(&context);
    return status ? 1 : 0;
}
