/* SPDX-License-Identifier: Apache-2.0 */
/* Calls MPI_Finalize in a separate thread (mpi_finalize.h), and ends a wait of MPICH that would never end.
 *
 * MPI_Finalize of MPICH before 4.2 may wait for ever although all processes have called it
 * (https://github.com/pmodels/mpich/pull/6596). Process A has closed its connections and waits in a barrier of the
 * launcher. Process B still closes its connections and waits for an answer of A, which no longer answers. A sleeps
 * while it reads from the launcher; B keeps its processor busy, by which this file recognises B. In B, this file sends
 * the launcher the barrier message of PMI 1. Then the barrier ends, A exits, and the system closes the connections
 * between A and B, for which B has waited. */
#include "mpi_finalize.h"

#include "../wire/watch.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOW_SECONDS 1.0   /* if MPI_Finalize takes longer, this process looks for the reason */
#define ANSWER_SECONDS 0.2 /* time limit of the launcher's answer */

static atomic_bool done;

static void *call_finalize(void *user)
{
    (void)user;
    MPI_Finalize();
    atomic_store(&done, true);
    return NULL;
}

bool ith_mpi_await(atomic_bool *ended, double end)
{
    int nap = 10000;
    for (; !atomic_load(ended) && ith_watch_now() < end; nap = nap < 1000000 ? 2 * nap : nap)
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    return atomic_load(ended);
}

/* Waits for MPI_Finalize. Returns whether it has ended. */
static bool wait_until(double end)
{
    return ith_mpi_await(&done, end);
}

#ifdef OPEN_MPI

static void finish_slowly(pthread_t thread, double end)
{
    (void)thread;
    wait_until(end);
}

#else

/* Seconds for which a thread has used a processor. */
static double busy_seconds(pthread_t thread)
{
    clockid_t clock;
    struct timespec time;
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &time))
        return 0;
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Writes a line to Hydra. Returns false under another launcher. */
static bool tell_hydra(const char *line)
{
    const char *descriptor = getenv("PMI_FD");
    return descriptor && write(atoi(descriptor), line, strlen(line)) == (ssize_t)strlen(line);
}

/* Waits for an MPI_Finalize that is slow. If this is process B, enters the barrier for it. */
static void finish_slowly(pthread_t thread, double end)
{
    const double busy = busy_seconds(thread);
    if (wait_until(ith_watch_now() + SLOW_SECONDS))
        return;
    /* The limit is low, because on a busy machine the thread may get a small part of a processor. */
    if (busy_seconds(thread) - busy < 0.02 * SLOW_SECONDS || !tell_hydra("cmd=barrier_in\n")) {
        wait_until(end);
        return;
    }
    /* For Hydra the run has failed if a process ends without this message. */
    if (!wait_until(ith_watch_now() + SLOW_SECONDS) && tell_hydra("cmd=finalize\n"))
        wait_until(ith_watch_now() + ANSWER_SECONDS);
}

#endif

void ith_mpi_finalize(double seconds)
{
    const double start = ith_watch_now(), end = start + seconds;
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_finalize, NULL)) {
        MPI_Finalize();
        return;
    }
    pthread_detach(thread);
    if (!wait_until(seconds < SLOW_SECONDS ? end : start + SLOW_SECONDS) && ith_watch_now() < end)
        finish_slowly(thread, end);
}
