/* Ctrl-C: the first asks the run to stop in order, the second ends the process. */
#ifndef ITH_CLI_INTERRUPT_H
#define ITH_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP are taken; a signal that was ignored stays so. */
void ith_interrupt_watch(void);
bool ith_interrupt_came(void);

#endif
