/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over three processes that share no memory, on a transport that is no part of the library. Each process
 * holds its share of the rows; process 0 prints the plan.
 *
 *     cc attend_on_processes.c socket_*.c $(pkg-config --cflags --libs ithaca) -lpthread -lm -o attend && ./attend
 */
#include "socket_meeting.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 3, HEADS = 6, DIM = 64, LENGTH = 1000, ROW = HEADS * DIM };

/* All numbers of v are 1, so all numbers of o must be 1. Returns 1 if one is not. */
static int check(const float *o, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(o[i] - 1) <= 1e-5f))
            return 1;
    return 0;
}

/* Makes a plan and executes it on this rank's rows. tensors: q, k, v and o, of `count` numbers each. */
static ith_status attend(ith_context *context, ith_comm *comm, float *tensors, int64_t count)
{
    char text[512];
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = HEADS, problem.head_dim = DIM;
    problem.q_len = problem.kv_len = LENGTH;
    ith_attn_tensors share = ITH_ATTN_TENSORS_INIT;
    share.q = tensors, share.k = tensors + count, share.v = tensors + 2 * count, share.o = tensors + 3 * count;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &problem, NULL, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &share);
    if (!status && ith_comm_rank(comm) == 0)
        printf("%s\n", ith_plan_print(plan, text, sizeof text));
    ith_plan_destroy(&plan);
    return status;
}

/* Runs in each process: connects it to the others, and computes its share of the attention. */
static int be_rank(int rank, const char *folder, void *user)
{
    char problem[SOCKET_SENTENCE];
    ith_context *context = NULL;
    ith_comm *comm = NULL;
    int64_t first, rows;
    (void)user;
    ith_share(LENGTH, RANKS, rank, &first, &rows);
    float *tensors = malloc((size_t)(4 * rows * ROW) * sizeof *tensors);
    void *state = socket_meet(folder, rank, RANKS, 10, problem);
    if (!tensors || !state) {
        fprintf(stderr, "rank %d: %s\n", rank, state ? "out of memory" : problem);
        free(tensors);
        return 1;
    }
    for (int64_t i = 0; i < 4 * rows * ROW; i++)
        tensors[i] = i / (rows * ROW) < 2 ? (float)((i * 7 + rank) % 100) * 0.01f : 1.0f;
    ith_status status = ith_context_create(NULL, &context);
    if (!status)
        status = ith_comm_create(context, &socket_transport, state, rank, RANKS, &comm);
    if (status)
        socket_transport.close(state); /* without a communicator the state is still the caller's */
    else
        status = attend(context, comm, tensors, rows * ROW);
    if (status)
        fprintf(stderr, "rank %d: %s: %s\n", rank, ith_status_name(status), ith_context_error(context));
    int failed = status || check(tensors + 3 * rows * ROW, rows * ROW);
    ith_comm_destroy(&comm);
    ith_context_destroy(&context);
    free(tensors);
    return failed;
}

int main(void)
{
    int statuses[RANKS];
    return socket_run_processes(RANKS, be_rank, NULL, statuses) != 0;
}
