/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one thread for each rank of this process (ranks.h). ith_run_ranks uses the local transport.
 *
 * All threads are started before any rank begins. They wait at a gate, which opens once every thread exists, and is
 * cancelled if the system refuses to start one. So either all ranks run or none. */
#include "ranks.h"

#include "../base/team_limit.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The least stack of a rank's thread: 512 KB for the library (ithaca.h), and as much for the function of the rank. Some
 * C libraries give threads 128 KB, and on others `ulimit -s` sets the usual size. */
#define LEAST_STACK_BYTES ((size_t)1 << 20)

/* The gate at which threads wait until all threads of the run exist. */
typedef enum gate { GATE_SHUT, GATE_OPEN, GATE_CANCELLED } gate;

/* Data that the ranks of one run share. The lock protects gate, status and sentence. */
typedef struct rank_run {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* signalled when the gate changes */
    gate gate;
    ith_status status; /* failure of the rank that failed first */
    char sentence[ITH_ERROR_BYTES];
    ith_rank_fn fn;
    void *user;
} rank_run;

/* One rank of the run, and its thread. */
typedef struct rank_thread {
    rank_run *run;
    pthread_t thread;
    ith_context *context;
    ith_comm *comm;
    int threads; /* size of the OpenMP teams of this rank */
} rank_thread;

/* The ranks of a run, whose contexts and communicators also lie in lists for ith_ranks_make. */
typedef struct rank_list {
    int ranks;
    rank_thread *all;
    ith_context **contexts;
    ith_comm **comms;
} rank_list;

static gate wait_at_gate(rank_run *run)
{
    pthread_mutex_lock(&run->lock);
    while (run->gate == GATE_SHUT)
        pthread_cond_wait(&run->moved, &run->lock);
    gate seen = run->gate;
    pthread_mutex_unlock(&run->lock);
    return seen;
}

static void move_gate(rank_run *run, gate to)
{
    pthread_mutex_lock(&run->lock);
    run->gate = to;
    pthread_cond_broadcast(&run->moved);
    pthread_mutex_unlock(&run->lock);
}

/* Keeps the failure of the rank that failed first. A rank records its failure before it ends the group, so failures of
 * other ranks that result from it come later. */
static void record_failure(rank_run *run, ith_status status, ith_context *context, int rank)
{
    if (!ith_context_error(context)[0] && status == ITH_ERR_MEMORY)
        ith_fail(context, status, "rank %d: out of memory", rank);
    else if (!ith_context_error(context)[0])
        ith_fail(context, status, "rank %d returned %s and said nothing", rank, ith_status_name(status));
    pthread_mutex_lock(&run->lock);
    if (!run->status) {
        run->status = status;
        snprintf(run->sentence, sizeof run->sentence, "%s", ith_context_error(context));
    }
    pthread_mutex_unlock(&run->lock);
}

/* The main function of a thread: waits until all threads of the run exist (the gate opens), and runs one rank. */
static void *rank_main(void *argument)
{
    rank_thread *self = argument;
    if (wait_at_gate(self->run) == GATE_CANCELLED)
        return NULL;
    omp_set_num_threads(self->threads);
    ith_status status = self->run->fn(self->context, self->comm, self->run->user);
    if (status > ITH_OK || status < ITH_ERR_INTERNAL)
        status = ith_fail(self->context, ITH_ERR_ABORTED,
                          "rank %d returned %d, which is no ith_status: it counts as a failure",
                          ith_comm_rank(self->comm), (int)status);
    if (status) {
        record_failure(self->run, status, self->context, ith_comm_rank(self->comm));
        ith_comm_abort(self->comm, status);
    }
    ith_comm_destroy(&self->comm); /* ranks that still wait for this rank fail, because it has left */
    return NULL;
}

/* Makes a context and a communicator for each rank, and gives each rank its share of the threads. */
static ith_status create_ranks(ith_context *context, rank_run *run, const rank_list *c, int threads,
                               ith_ranks_make make, void *make_user)
{
    for (int i = 0; i < c->ranks; i++) {
        int64_t begin, share;
        ith_share(threads, c->ranks, i, &begin, &share);
        c->all[i].run = run;
        c->all[i].threads = share > 1 ? (int)share : 1;
        ith_status status = ith_context_clone(context, &c->all[i].context);
        if (status)
            return status;
        c->contexts[i] = c->all[i].context;
    }
    ith_status status = make(make_user, c->contexts, c->ranks, c->comms);
    if (status)
        return ith_fail(context, status, "%s", ith_context_error(c->contexts[0]));
    for (int i = 0; i < c->ranks; i++)
        c->all[i].comm = c->comms[i];
    return ITH_OK;
}

/* Starts the thread of a rank with the usual stack, or a larger one. Returns 0 or the reason why it could not start. */
static int start(rank_thread *rank)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    int failure = pthread_attr_init(&attributes);
    if (failure)
        return failure;
    if (!pthread_attr_getstacksize(&attributes, &bytes) && bytes < LEAST_STACK_BYTES)
        failure = pthread_attr_setstacksize(&attributes, LEAST_STACK_BYTES);
    if (!failure)
        failure = pthread_create(&rank->thread, &attributes, rank_main, rank);
    pthread_attr_destroy(&attributes);
    return failure;
}

/* Starts all threads, which wait at the gate. Opens the gate if all have started, and cancels it otherwise. Waits until
 * all threads have ended. */
static ith_status run_threads(ith_context *context, rank_run *run, const rank_list *c)
{
    int started = 0, failure = 0;
    while (started < c->ranks && !failure) {
        failure = start(&c->all[started]);
        started += !failure;
    }
    if (failure) { /* ranks of other processes learn the reason */
        ith_fail(c->all[0].context, ITH_ERR_MEMORY, "rank %d of %d could not be started: %s", started, c->ranks,
                 strerror(failure));
        ith_comm_abort(c->all[0].comm, ITH_ERR_MEMORY);
    }
    move_gate(run, failure ? GATE_CANCELLED : GATE_OPEN);
    for (int i = 0; i < started; i++)
        pthread_join(c->all[i].thread, NULL);
    if (failure)
        return ith_fail(context, ITH_ERR_MEMORY, "%s", ith_context_error(c->all[0].context));
    return run->status ? ith_fail(context, run->status, "%s", run->sentence) : ITH_OK;
}

ith_status ith_ranks_check(ith_context *context, int ranks, int threads, ith_rank_fn fn)
{
    if (ranks < 1 || threads < 0 || !fn)
        return ith_fail(context, ITH_ERR_ARGUMENT, "ranks is %d (at least 1), threads is %d (0 or more), fn is %s",
                        ranks, threads, fn ? "given" : "NULL");
    ith_status status = ith_context_check_process(context);
    if (!status)
        status = ith_thread_limit_check(context, "ranks", ranks);
    if (!status)
        status = ith_thread_limit_check(context, "threads", ith_threads_or(threads, omp_get_max_threads()));
    return status;
}

int64_t ith_ranks_bytes(int ranks)
{
    return ranks * (int64_t)(sizeof(rank_thread) + sizeof(ith_context *) + sizeof(ith_comm *)) + 3 * ITH_ALLOC_HEADER;
}

ith_status ith_ranks_run(ith_context *context, ith_ranks_make make, void *make_user, int ranks, int threads,
                         ith_rank_fn fn, void *user)
{
    rank_run run = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .fn = fn, .user = user};
    const rank_list c = {.ranks = ranks,
                         .all = ith_alloc_zero(context, ranks, sizeof(rank_thread), "the ranks"),
                         .contexts = ith_alloc_zero(context, ranks, sizeof(ith_context *), "the ranks"),
                         .comms = ith_alloc_zero(context, ranks, sizeof(ith_comm *), "the ranks")};
    ith_status status = ITH_ERR_MEMORY;
    threads = ith_threads_or(threads, omp_get_max_threads());
    if (c.all && c.contexts && c.comms)
        status = create_ranks(context, &run, &c, threads, make, make_user);
    if (!status)
        status = run_threads(context, &run, &c);
    for (int i = 0; c.all && i < ranks; i++)
        ith_comm_destroy(&c.all[i].comm);
    for (int i = 0; c.all && i < ranks; i++)
        ith_context_destroy(&c.all[i].context);
    ith_free(context, c.comms);
    ith_free(context, c.contexts);
    ith_free(context, c.all);
    pthread_cond_destroy(&run.moved);
    pthread_mutex_destroy(&run.lock);
    return status;
}

static ith_status make_local(void *user, ith_context *const *contexts, int ranks, ith_comm **comms)
{
    (void)user;
    return ith_comm_create_local(contexts, ranks, comms);
}

ith_status ith_run_ranks(ith_context *context, int ranks, int threads, ith_rank_fn fn, void *user)
{
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = ith_ranks_check(context, ranks, threads, fn);
    return status ? status : ith_ranks_run(context, make_local, NULL, ranks, threads, fn, user);
}
