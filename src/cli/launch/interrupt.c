/* SPDX-License-Identifier: Apache-2.0 */
/* Every thread blocks the signals, and one thread receives them with sigwait. That thread is no signal handler, so it
 * may take locks, print, and call any function. */
#include "interrupt.h"

#include "../cli.h"
#include "../option/complaint.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static sigset_t watched;                                 /* the signals that wait_for_signals receives */
static atomic_int came;                                  /* the first recorded signal; 0: none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects deferred, cancel_call and cancel_target */
static bool deferred;
static void (*cancel_call)(void *target);
static void *cancel_target;

/* Ends the process with exit status 1. Flushes standard output, unless a thread is in the middle of printing. Of
 * several processes, all of which get the signal from their launcher, one says so. */
static void end_process(int number)
{
    if (ith_error_leads())
        ith_error_print("interrupted by SIG%s", sigabbrev_np(number));
    if (!ftrylockfile(stdout))
        fflush(stdout);
    _exit(ITH_EXIT_FAILED);
}

/* Ends the process by the default action of the signal, so that the parent process sees the signal as the cause. */
static void die_of(int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    signal(number, SIG_DFL);
    raise(number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

/* Handles the first signal of a kind: ends the process or, if signals are deferred, records the signal and calls
 * cancel_call. */
static void take_signal(int number)
{
    int none = 0;
    pthread_mutex_lock(&lock);
    if (!deferred)
        end_process(number);
    atomic_compare_exchange_strong(&came, &none, number);
    if (cancel_call)
        cancel_call(cancel_target);
    pthread_mutex_unlock(&lock);
}

/* The thread that receives all watched signals; a second signal of a kind ends the process at once. */
static void *wait_for_signals(void *user)
{
    (void)user;
    sigset_t seen;
    sigemptyset(&seen);
    for (int number; !sigwait(&watched, &number);) {
        if (sigismember(&seen, number))
            die_of(number);
        sigaddset(&seen, number);
        take_signal(number);
    }
    return NULL;
}

void ith_interrupt_watch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    pthread_t thread;
    sigset_t before;
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old;
        if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaddset(&watched, numbers[i]);
    }
    pthread_sigmask(SIG_BLOCK, &watched, &before); /* threads that start later inherit this mask */
    if (pthread_create(&thread, NULL, wait_for_signals, NULL))
        pthread_sigmask(SIG_SETMASK, &before, NULL); /* without the thread, signals have their default effect */
    else
        pthread_detach(thread);
}

void ith_interrupt_defer(void)
{
    pthread_mutex_lock(&lock);
    deferred = true;
    pthread_mutex_unlock(&lock);
}

int ith_interrupt_came(void)
{
    return atomic_load(&came);
}

bool ith_interrupt_stops(void *user)
{
    (void)user;
    return ith_interrupt_came() != 0;
}

void ith_interrupt_describe(char *text, size_t bytes)
{
    snprintf(text, bytes, "interrupted by SIG%s", sigabbrev_np(ith_interrupt_came()));
}

int ith_interrupt_check(void)
{
    char sentence[64];
    if (!ith_interrupt_came())
        return ITH_EXIT_DONE;
    ith_interrupt_describe(sentence, sizeof sentence);
    return ith_cli_error("%s", sentence);
}

void ith_interrupt_target(void (*cancel)(void *target), void *target)
{
    pthread_mutex_lock(&lock);
    cancel_call = cancel, cancel_target = target;
    if (cancel && ith_interrupt_came())
        cancel(target);
    pthread_mutex_unlock(&lock);
}
