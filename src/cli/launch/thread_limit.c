/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenMP runtime ends the process if the system refuses it a thread. The system has many limits (ulimit -u and -v,
 * the pids of a control group, memory for stacks), so this file starts the threads once instead of reading limits. */
#include "thread_limit.h"

#include "../cli.h"
#include "busy_machine.h"

#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A thread that ends when the mutex `gate` is unlocked. */
static void *wait_for_gate(void *user)
{
    pthread_mutex_t *gate = user;
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

bool ith_cli_can_start(int64_t count, int64_t *most)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    *most = 0;
    if (!threads) {
        errno = ENOMEM;
        return false;
    }
    pthread_mutex_lock(&gate); /* no thread ends before the last one was started */
    int error = 0;
    while (*most < count && !(error = pthread_create(&threads[*most], NULL, wait_for_gate, &gate)))
        ++*most;
    pthread_mutex_unlock(&gate);
    for (int64_t i = 0; i < *most; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    errno = error;
    return !error;
}

int ith_cli_limited_threads(int processes)
{
    if (omp_get_max_threads() != omp_get_num_procs())
        return omp_get_max_threads();
    const int usable = ith_processor_count();
    if (usable == omp_get_num_procs())
        return 0;
    return usable > processes ? usable / processes : 1;
}

int ith_cli_threads(int64_t asked)
{
    const int limited = asked ? (int)asked : ith_cli_limited_threads(1);
    return limited ? limited : omp_get_max_threads();
}

int64_t ith_cli_thread_count(int64_t ranks, int64_t threads)
{
    const int count = ith_cli_threads(threads);
    return count > ranks ? count : ranks;
}

int ith_cli_prepare_threads(int64_t ranks, int64_t threads, int others)
{
    int64_t count = ith_cli_thread_count(ranks, threads), most;
    if (count > ITH_CLI_THREADS_MAX)
        return ith_cli_error("OMP_NUM_THREADS asks for %lld threads: at most %d are possible", (long long)count,
                             ITH_CLI_THREADS_MAX);
    /* The OpenMP teams of all ranks have `count` threads together; the calling thread's own team may have as many. */
    const int64_t needed = 2 * count + others + (count > 1 ? ith_cli_share_machine_threads() : 0);
    if (ith_cli_can_start(needed, &most)) {
        if (count > 1)
            ith_cli_share_machine();
        return ITH_EXIT_DONE;
    }
    return ith_cli_error("%lld thread%s on %lld rank%s may need %lld more than there are, and the system lets this "
                         "process start %lld (%s): ask for fewer with --threads and --ranks, or raise the limit "
                         "(ulimit -u, ulimit -v, or pids.max of the control group)",
                         (long long)count, ith_cli_plural(count), (long long)(ranks ? ranks : 1),
                         ith_cli_plural(ranks ? ranks : 1), (long long)needed, (long long)most, strerror(errno));
}
