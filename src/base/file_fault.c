/* SPDX-License-Identifier: Apache-2.0 */
/* The handler of SIGBUS, and the guards that it returns to (file_fault.h).
 *
 * The library may be in a process more than once, as libithaca and libithaca_wan contain this file. Each copy has a
 * handler and threads' guards of its own. The later handler calls the earlier one for a signal that is not its own. */
#include "file_fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

/* A call of ith_file_fault_guard that has not returned. */
typedef struct guard {
    sigjmp_buf place;    /* where the call continues after an access to a lost page */
    struct guard *outer; /* the guard around this one; NULL: none */
} guard;

/* The calling thread's innermost guard; NULL outside of any. "initial-exec" means that the signal handler can read the
 * variable in every thread without an allocation. */
static __thread guard *volatile innermost __attribute__((tls_model("initial-exec")));

static pthread_once_t installed = PTHREAD_ONCE_INIT;
static struct sigaction previous; /* the action that SIGBUS had before */

/* Whether the signal reports an access to a page that a mapped file does not have or that cannot be read. */
static bool is_lost_page(const siginfo_t *info)
{
    return info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR || info->si_code == BUS_MCEERR_AR;
}

/* Does with a signal what would have happened without this file's handler. */
static void hand_on(int number, siginfo_t *info, void *machine_state)
{
    bool sent = info->si_code <= 0; /* by kill or raise, not by an access of this thread */
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, machine_state);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else if (previous.sa_handler == SIG_DFL || !sent) { /* the system ignores no signal of an access */
        signal(number, SIG_DFL);
        if (sent)
            raise(number); /* an access raises its signal again, because it is repeated when the handler returns */
    }
}

static void take_signal(int number, siginfo_t *info, void *machine_state)
{
    guard *g = innermost;
    if (g && is_lost_page(info)) {
        /* The jump leaves the handler for good. So the thread gets back the signal mask that it had at the access. */
        pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)machine_state)->uc_sigmask, NULL);
        siglongjmp(g->place, 1);
    }
    hand_on(number, info, machine_state);
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = take_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, NULL, &previous);
    sigaction(SIGBUS, &action, NULL);
}

bool ith_file_fault_guard(void (*read)(void *user), void *user)
{
    guard g = {.outer = innermost};
    pthread_once(&installed, install);
    if (sigsetjmp(g.place, 0)) { /* 0: without the signal mask, which would take a system call */
        innermost = g.outer;
        return false;
    }
    innermost = &g;
    read(user);
    innermost = g.outer;
    return true;
}
