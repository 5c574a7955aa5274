/* SPDX-License-Identifier: Apache-2.0 */
/* Loops on several threads, which belong to OpenMP or to the caller's pool (ith_context_options.parallel). */
#ifndef ITH_BASE_PARALLEL_H
#define ITH_BASE_PARALLEL_H

#include "context.h"

/* The largest number of threads of one loop. */
#define ITH_THREADS_MOST 4096

/* Runs task(user, 0), ..., task(user, threads - 1), each once, and returns when all have ended. Tasks may run at the
 * same time or in any order, so no task may wait for another. threads: 1 to ITH_THREADS_MOST. Within a task, OpenMP
 * uses one thread, and the floating-point state is the usual one (float_state.h). */
void ith_parallel(const ith_context *context, int threads, ith_task_fn task, void *user);

/* Calls task(user, 0) on a new thread, and waits for it. The team of OpenMP's threads that the task uses ends with the
 * new thread, and so does the number of threads that the task sets. Otherwise each thread that has run a loop keeps its
 * team. Teams that are kept slow down all others: where they have more threads than there are processors, OpenMP lets
 * threads sleep between two loops. */
void ith_parallel_apart(ith_task_fn task, void *user);

#endif
