/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenMP runtime ends the process if the system refuses it a thread. The system has many limits (ulimit -u and -v,
 * the pids of a control group, memory for stacks), so this file starts the threads once instead of reading limits. */
#include "thread_trial.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

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
