/* SPDX-License-Identifier: Apache-2.0 */
/* Handles SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). The first signal of each kind ends the command with
 * a sentence and exit status 1; a second signal of that kind has its default action.
 *
 * Until ith_interrupt_defer is called, the first signal ends the process at once, since the command has nothing to
 * clean up. Afterwards a signal is only recorded, and the command ends itself in order. */
#ifndef ITH_CLI_INTERRUPT_H
#define ITH_CLI_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>

/* Starts a thread that receives the signals. A signal that is ignored stays ignored. To be called before any other
 * thread is started. */
void ith_interrupt_watch(void);

/* From now on a signal is recorded for ith_interrupt_came and does not end the process. */
void ith_interrupt_defer(void);
/* Returns the first signal that was recorded; 0 if there is none. */
int ith_interrupt_came(void);
/* Whether a signal was recorded; a should_stop of the library. user: not used. */
bool ith_interrupt_stops(void *user);
/* Prints the name of the recorded signal and returns ITH_EXIT_FAILED. Returns ITH_EXIT_DONE if no signal was
 * recorded. */
int ith_interrupt_check(void);

/* Writes "interrupted by" and the name of the recorded signal into text. */
void ith_interrupt_describe(char *text, size_t bytes);

/* From now on a signal also calls cancel(target). If a signal was recorded already, the call is made at once. If cancel
 * is NULL, later signals call nothing, and no earlier call is still running when this function returns. */
void ith_interrupt_target(void (*cancel)(void *target), void *target);

#endif
