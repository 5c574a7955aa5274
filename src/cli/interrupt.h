/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). The first of each kind ends the command with a sentence and
 * exit status 1, the second one of a kind ends the process as the system does it.
 *
 * At first a signal ends the process at once: a command that has written nothing yet has nothing to put in order. After
 * ith_interrupt_defer it is the command that ends. */
#ifndef ITH_CLI_INTERRUPT_H
#define ITH_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on signals are taken, by a thread of their own. A signal that was ignored stays so. To be called before any
 * other thread is started. */
void ith_interrupt_watch(void);

/* From now on a signal is noted for ith_interrupt_came. */
void ith_interrupt_defer(void);
/* The signal that came first, 0 if none has come. */
int ith_interrupt_came(void);
/* Prints which signal it was and returns an exit status: ITH_EXIT_DONE if none has come. */
int ith_interrupt_check(void);

/* From now on a signal also calls cancel(target); at once if one has come already. cancel NULL: no more, and when the
 * function returns no such call is under way. */
void ith_interrupt_target(void (*cancel)(void *target), void *target);

#endif
