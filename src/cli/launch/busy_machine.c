/* SPDX-License-Identifier: Apache-2.0 */
/* Makes OpenMP threads sleep instead of spin on a busy machine.
 *
 * A waiting thread of the OpenMP runtime spins for some milliseconds before it sleeps. This is fast while every thread
 * has a processor. On a busy machine a spinning thread takes the processor from the thread that it waits for, and the
 * run becomes many times slower.
 *
 * libgomp reads its environment once, before main. But while the process has more OpenMP threads than processors, it
 * spins for microseconds only (do_spin in config/linux/wait.h: gomp_managed_threads > gomp_available_cpus). So one
 * thread here observes how long the threads of this process wait for a processor. While the wait is long, it keeps a
 * team of sleeping OpenMP threads alive, one more than there are processors. */
#include "busy_machine.h"

#include "../cli.h"
#include "thread_trial.h"

#include <dirent.h>
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_SECONDS 0.05 /* seconds between two measurements of the waiting times */
/* Limits of the time that all threads together wait for a processor, in seconds per second. Above BUSY the machine
 * counts as busy. After QUIET_LOOKS measurements in a row below QUIET it counts as quiet again. */
#define BUSY 0.5
#define QUIET 0.05
#define QUIET_LOOKS 20
#define SLEEPERS (omp_get_num_procs() + 1) /* threads of the team that sleeps */

/* ---- How long threads wait for a processor ---------------------------------------------------------------------- */

/* Returns the time that one thread has waited for a processor, in seconds (Documentation/scheduler/sched-stats.rst).
 * The first two numbers of schedstat are nanoseconds: running and waiting. */
static double thread_waited(int folder, const char *thread)
{
    char path[64], text[96];
    unsigned long long waited = 0;
    if (snprintf(path, sizeof path, "%.40s/schedstat", thread) >= (int)sizeof path)
        return 0;
    int file = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0; /* the thread has ended since it was listed */
    ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    text[bytes > 0 ? bytes : 0] = '\0';
    return sscanf(text, "%*u %llu", &waited) == 1 ? 1e-9 * (double)waited : 0;
}

/* Returns the time that all threads of the process have waited for a processor since their start, in seconds; a
 * negative number if the system does not report it. */
static double threads_waited(void)
{
    DIR *threads = opendir("/proc/self/task");
    if (!threads)
        return -1;
    double seconds = 0;
    for (struct dirent *entry; (entry = readdir(threads));)
        if (entry->d_name[0] != '.')
            seconds += thread_waited(dirfd(threads), entry->d_name);
    closedir(threads);
    return seconds;
}

/* ---- The team that sleeps --------------------------------------------------------------------------------------- */

/* The team of sleeping OpenMP threads. */
typedef struct sleepers {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* signalled when `leave` is set */
    bool there, leave;    /* whether the team exists; whether it is to end */
    pthread_t thread;
} sleepers;

/* The first thread of the sleeping team: starts the other threads of the team, and sleeps until `leave` is set. */
static void *keep_team(void *user)
{
    sleepers *s = user;
    int members = 0;
#pragma omp parallel num_threads(SLEEPERS) reduction(+ : members)
    members++; /* libgomp keeps the team's threads until this thread ends */
    pthread_mutex_lock(&s->lock);
    while (members > 0 && !s->leave)
        pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Starts the team of sleepers. Returns false if the system does not allow its threads. */
static bool send_to_sleep(sleepers *s)
{
    int64_t most;
    s->leave = false;
    s->there = ith_cli_can_start(SLEEPERS, &most) && !pthread_create(&s->thread, NULL, keep_team, s);
    return s->there;
}

/* Ends the team of sleepers and waits for its thread. */
static void let_leave(sleepers *s)
{
    pthread_mutex_lock(&s->lock);
    s->leave = true;
    pthread_cond_signal(&s->moved);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->there = false;
}

/* ---- The thread that looks -------------------------------------------------------------------------------------- */

/* The thread that observes waiting times, and starts and ends the team of sleepers. */
static void *look(void *user)
{
    sleepers *s = user;
    const struct timespec pause = {.tv_nsec = (long)(LOOK_EVERY_SECONDS * 1e9)};
    double waited = threads_waited(), now = ith_cli_seconds();
    for (int quiet = 0; waited >= 0;) {
        nanosleep(&pause, NULL);
        double waited_before = waited, before = now;
        waited = threads_waited(), now = ith_cli_seconds();
        /* Seconds that all threads have waited for a processor, per second since the last measurement; negative if
         * threads have ended. */
        double share = (waited - waited_before) / (now - before);
        quiet = share < QUIET ? quiet + 1 : 0;
        if (!s->there && share > BUSY && !send_to_sleep(s))
            return NULL;
        if (s->there && quiet >= QUIET_LOOKS)
            let_leave(s);
    }
    return NULL;
}

/* Whether the user has said how threads wait. */
static bool is_settled(void)
{
    return getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT");
}

int ith_cli_share_machine_threads(void)
{
    return is_settled() ? 0 : 1 + SLEEPERS; /* 1: the thread that looks */
}

void ith_cli_share_machine(void)
{
    static sleepers all = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    sigset_t every, before;
    if (is_settled())
        return;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* the new thread inherits this mask and receives no signals */
    if (!pthread_create(&thread, NULL, look, &all))
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
