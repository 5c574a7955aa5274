/* SPDX-License-Identifier: Apache-2.0 */
/* The handler of SIGBUS, and the guards that it returns to (file_fault.h).
 *
 * A process may have this file twice, because libithaca and libithaca_wan both contain it. Each copy has its own
 * handler and its own guards. The handler that was installed later calls the earlier one for a signal that is not its
 * own. */
#include "file_fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

#define MOST_REPLACED 8 /* the most different handlers of the program that are kept */

/* A call of ith_file_fault_guard that has not returned. */
typedef struct guard {
    sigjmp_buf place;    /* where the call continues after an access to a lost page */
    struct guard *outer; /* the guard around this one; NULL: none */
} guard;

/* For the variables of a thread that the signal handler reads. In a library that dlopen has loaded, glibc may allocate
 * such a variable when a thread first reads it, which is not allowed in a signal handler; "initial-exec" forbids it.
 * musl never does that, and its dlopen refuses a library with this attribute. */
#ifdef __GLIBC__
#define SIGNAL_SAFE __attribute__((tls_model("initial-exec")))
#else
#define SIGNAL_SAFE
#endif

static __thread guard *volatile innermost SIGNAL_SAFE; /* of the calling thread; NULL outside of any guard */

/* The actions of SIGBUS that this file's handler has replaced: the first one, and one for each different handler that
 * the program installed later. Entries are never removed, because a signal may come at any time. */
static struct sigaction replaced[MOST_REPLACED];
static int replaced_count;
static atomic_int latest;                                /* index of the action that was replaced last */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for installing */

/* Whether the calling thread is in a replaced handler, which this file's handler has called. */
static __thread volatile bool handing_on SIGNAL_SAFE;

/* Whether the signal reports an access to a page that a mapped file does not have or that cannot be read. */
static bool is_lost_page(const siginfo_t *info)
{
    return info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR || info->si_code == BUS_MCEERR_AR;
}

/* Passes a signal to an action, as the system would have done without this file's handler. */
static void hand_on(const struct sigaction *action, int number, siginfo_t *info, void *machine_state)
{
    bool sent = info->si_code <= 0; /* by kill or raise, not by an access of this thread */
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(number, info, machine_state);
    } else if (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) {
        action->sa_handler(number);
    } else if (action->sa_handler == SIG_DFL || !sent) { /* the system ignores no signal of an access */
        signal(number, SIG_DFL);
        if (sent)
            raise(number); /* an access needs no raise: it is repeated when the handler returns */
    }
}

static void take_signal(int number, siginfo_t *info, void *machine_state)
{
    guard *g = innermost;
    if (g && is_lost_page(info)) {
        /* The handler does not return, so it restores the signal mask that the thread had at the access. */
        pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)machine_state)->uc_sigmask, NULL);
        siglongjmp(g->place, 1);
    }
    /* A handler that the program installed later may call this one. In this nested call the signal goes to the action
     * that was replaced first, so that the two handlers do not call each other for ever. */
    bool nested = handing_on;
    handing_on = true;
    hand_on(&replaced[nested ? 0 : atomic_load(&latest)], number, info, machine_state);
    handing_on = nested;
}

/* Stores an action that is about to be replaced. Returns false if there is no place for it. */
static bool keep(const struct sigaction *action)
{
    int index = 0;
    while (index < replaced_count && replaced[index].sa_sigaction != action->sa_sigaction)
        index++;
    if (index == MOST_REPLACED)
        return false;
    if (index == replaced_count)
        replaced[replaced_count++] = *action;
    atomic_store(&latest, index);
    return true;
}

void ith_file_fault_renew(void)
{
    struct sigaction now, own = {.sa_sigaction = take_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&own.sa_mask);
    pthread_mutex_lock(&lock);
    if (!sigaction(SIGBUS, NULL, &now) && now.sa_sigaction != take_signal && keep(&now))
        sigaction(SIGBUS, &own, NULL);
    pthread_mutex_unlock(&lock);
}

bool ith_file_fault_guard(void (*read)(void *user), void *user)
{
    guard g = {.outer = innermost};
    static pthread_once_t installed = PTHREAD_ONCE_INIT;
    pthread_once(&installed, ith_file_fault_renew);
    if (sigsetjmp(g.place, 0)) { /* 0: no signal mask is saved, because that takes a system call */
        innermost = g.outer;
        return false;
    }
    innermost = &g;
    read(user);
    innermost = g.outer;
    return true;
}

ith_status ith_fail_file_fault(ith_context *context, const char *file)
{
    return ith_fail(context, ITH_ERR_IO,
                    "%s was cut while it was in use, or its disk failed: make it whole, and run again", file);
}
