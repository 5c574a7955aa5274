/* SPDX-License-Identifier: Apache-2.0 */
/* Loops on several threads (parallel.h): OpenMP's team, or tasks in the caller's pool. */
#include "parallel.h"

#include "float_state.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* One call of ith_parallel whose tasks run in the caller's pool. */
typedef struct pool_call {
    ith_task_fn task;
    void *user;
    int threads;
    atomic_int ended;                    /* number of tasks that have ended */
    atomic_bool taken[ITH_THREADS_MOST]; /* for each task: whether a thread has begun it */
} pool_call;

/* Runs a task in the usual floating-point state, whatever the state of the thread is. */
static void run_usual(ith_task_fn task, void *user, int thread)
{
    const fenv_t before = ith_float_begin();
    task(user, thread);
    ith_float_end(before);
}

/* Runs a task with OpenMP limited to one thread. Libraries that the task calls may use OpenMP, but all threads are busy
 * already. */
static void run_alone(ith_task_fn task, void *user, int thread)
{
    int threads = omp_get_max_threads();
    if (threads > 1)
        omp_set_num_threads(1);
    run_usual(task, user, thread);
    if (threads > 1)
        omp_set_num_threads(threads);
}

/* Runs task number `thread` of a pool_call, unless it has been run already or does not exist. */
static void run_once(void *user, int thread)
{
    pool_call *call = user;
    if (thread < 0 || thread >= call->threads || atomic_exchange(&call->taken[thread], true))
        return;
    run_alone(call->task, call->user, thread);
    atomic_fetch_add(&call->ended, 1);
}

/* Runs the tasks in the caller's pool, then runs the tasks that the pool did not run, and waits for all. So a faulty
 * pool costs time but not correctness. */
static void run_in_pool(ith_parallel_fn pool, void *pool_user, int threads, ith_task_fn task, void *user)
{
    pool_call call = {.task = task, .user = user, .threads = threads};
    pool(pool_user, threads, run_once, &call);
    for (int thread = 0; thread < threads; thread++)
        run_once(&call, thread);
    while (atomic_load(&call.ended) < threads)
        sched_yield();
}

void ith_parallel(const ith_context *context, int threads, ith_task_fn task, void *user)
{
    void *pool_user;
    ith_parallel_fn pool = ith_context_parallel(context, &pool_user);
    if (threads == 1) {
        run_alone(task, user, 0);
    } else if (pool) {
        run_in_pool(pool, pool_user, threads, task, user);
    } else {
        /* OpenMP may give a team of fewer threads, so member i of a team of n runs the tasks i, i + n, i + 2 n, ... */
#pragma omp parallel num_threads(threads)
        for (int thread = omp_get_thread_num(); thread < threads; thread += omp_get_num_threads())
            run_usual(task, user, thread);
    }
}

/* The arguments of ith_parallel_apart, for its thread. */
typedef struct apart_call {
    ith_task_fn task;
    void *user;
} apart_call;

static void *run_apart(void *user)
{
    const apart_call *call = user;
    call->task(call->user, 0);
    return NULL;
}

void ith_parallel_apart(ith_task_fn task, void *user)
{
    apart_call call = {task, user};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_apart, &call)) {
        const int threads = omp_get_max_threads();
        task(user, 0); /* the team stays, which costs time but nothing else */
        omp_set_num_threads(threads);
        return;
    }
    pthread_join(thread, NULL);
}
