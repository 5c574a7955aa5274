/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_Finalize in a thread of its own (mpi_finalize.h), and help for MPICH's.
 *
 * MPI_Finalize of MPICH before 4.2 may wait for ever although all processes have called it: a process that has closed
 * its connections waits in a barrier of the launcher, and no longer answers a process that still closes its own
 * (https://github.com/pmodels/mpich/pull/6596). The former reads from the launcher, the latter keeps its processor
 * busy. The latter then enters the barrier here, in the words of PMI 1, so that all others go on, and their ends close
 * its connections. */
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

#define SLOW_SECONDS 1.0   /* of MPI_Finalize, before this process looks for the reason */
#define ANSWER_SECONDS 0.2 /* for the launcher to answer */

static atomic_bool done;

static void *call_finalize(void *user)
{
    (void)user;
    MPI_Finalize();
    atomic_store(&done, true);
    return NULL;
}

/* Waits for MPI_Finalize. Returns whether it has ended. */
static bool wait_until(double end)
{
    int nap = 10000;
    for (; !atomic_load(&done) && ith_watch_now() < end; nap = nap < 1000000 ? 2 * nap : nap)
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    return atomic_load(&done);
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

/* Helps an MPI_Finalize that is slow. */
static void finish_slowly(pthread_t thread, double end)
{
    const double busy = busy_seconds(thread);
    if (wait_until(ith_watch_now() + SLOW_SECONDS))
        return;
    /* on a busy machine it may get a small part of a processor */
    if (busy_seconds(thread) - busy < 0.02 * SLOW_SECONDS || !tell_hydra("cmd=barrier_in\n")) {
        wait_until(end);
        return;
    }
    /* Hydra takes the end of a process that has not said so for a failure of the run. */
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
