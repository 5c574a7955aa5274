/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). The first signal of each kind ends the command with a
 * sentence and exit status 1; the second one has its default action.
 *
 * Until ith_interrupt_defer, the first signal ends the process at once, since the command has nothing to clean up.
 * After it, the signal is recorded, and the command itself ends in order. */
#ifndef ITH_CLI_INTERRUPT_H
#define ITH_CLI_INTERRUPT_H

#include <stdbool.h>

/* Starts a thread that receives the signals. A signal that is ignored stays ignored. To be called before any other
 * thread is started. */
void ith_interrupt_watch(void);

/* From now on a signal is recorded for ith_interrupt_came and does not end the process. */
void ith_interrupt_defer(void);
/* The first signal that was recorded; 0 if there is none. */
int ith_interrupt_came(void);
/* Prints the name of the recorded signal and returns ITH_EXIT_FAILED; ITH_EXIT_DONE if there is none. */
int ith_interrupt_check(void);

/* From now on a signal also calls cancel(target), at once if one was recorded already. With cancel NULL no later signal
 * calls it, and no call is running when the function returns. */
void ith_interrupt_target(void (*cancel)(void *target), void *target);

#endif
