/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_suite TRANSPORT RANKS[,RANKS...]: the suite of transports in processes that a launcher has started. Process n has
 * the n-th number of ranks, or the last. Only tests with the number of all ranks run. */
#include "comm/suite/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WATCHDOG_SECONDS = 280 };

typedef struct job {
    ith_context *context;
    const char *transport;
    int ranks, all; /* numbers of ranks: of this process, of all processes */
    int runs;       /* number of runs with the right number of ranks */
} job;

/* A number of each process, and their sum over all processes. */
typedef struct total {
    int mine, all;
} total;

static ith_status add_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    total *t = user;
    int rank = ith_comm_rank(comm);
    ith_place here = ITH_PLACE_INIT, before = ITH_PLACE_INIT;
    SUITE_TRY(context, ith_comm_place(comm, rank, &here));
    SUITE_TRY(context, ith_comm_place(comm, rank ? rank - 1 : 0, &before));
    bool lowest = rank == 0 || before.process != here.process;
    float sum = lowest ? (float)t->mine : 0;
    SUITE_TRY(context, ith_comm_allreduce(comm, &sum, 1, ITH_REDUCE_SUM));
    if (lowest)
        t->all = (int)sum;
    return ITH_OK;
}

/* The sum over all processes; -1 on failure. */
static int add(job *j, int mine)
{
    total t = {.mine = mine};
    ith_status status = ith_run_ranks_connected(j->context, j->transport, NULL, j->ranks, 1, add_in_rank, &t);
    if (status)
        fprintf(stderr, "%s\n", ith_context_error(j->context));
    return status ? -1 : t.all;
}

static int run(void *self, int ranks, ith_rank_fn fn, void *user)
{
    job *j = self;
    if (ranks != j->all)
        return 0;
    j->runs++;
    ith_status status = ith_run_ranks_connected(j->context, j->transport, NULL, j->ranks, j->ranks, fn, user);
    if (status)
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(j->context));
    return add(j, status != ITH_OK);
}

/* The number of this process among the processes of the launcher. */
static int find_number(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return 0;
}

int main(int argc, char **argv)
{
    job j = {.transport = argc > 2 ? argv[1] : NULL, .ranks = argc > 2 ? atoi(argv[2]) : 0};
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    const char *next = argc > 2 ? argv[2] : "";
    for (int i = find_number(); i > 0 && (next = strchr(next, ',')) != NULL; i--)
        j.ranks = atoi(++next);
    if (!j.ranks || ith_context_create(NULL, &j.context))
        return 2;
    alarm(WATCHDOG_SECONDS);
    j.all = add(&j, j.ranks);
    if (j.all < 0)
        return 1;
    const suite_subject subject = {
        .name = j.transport, .ranks = j.all, .alive = true, .notifies = true, .run = run, .self = &j};
    int failed = suite_run(&subject, getenv("SUITE"));
    if (ith_context_memory(j.context, &use) || use.current_bytes) {
        fprintf(stderr, "memory was not given back\n");
        failed++;
    }
    ith_context_destroy(&j.context);
    printf("%d runs on %d ranks, %d of this process: %d failed\n", j.runs, j.all, j.ranks, failed);
    return failed || !j.runs;
}
