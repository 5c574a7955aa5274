/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises the program that started this process from its environment. */
#ifndef ITH_CLI_LAUNCHER_KIND_H
#define ITH_CLI_LAUNCHER_KIND_H

#include <stdbool.h>

/* A launcher: its environment variables, and the transports that can connect its processes, the best one first. */
typedef struct ith_launcher_kind {
    const char *name, *size, *process;
    const char *modules[3]; /* ends with NULL; empty: its processes cannot be connected */
} ith_launcher_kind;

/* The launcher of this process; NULL if none is recognised. */
const ith_launcher_kind *ith_launcher_recognise(void);
/* The same for transports other than MPI: numbers that the caller gives the processes (ITHACA_PROCESS) come first. */
const ith_launcher_kind *ith_launcher_recognise_any(void);
/* The number in an environment variable; `other` if it is not set or holds no number from 0 on. */
int ith_launcher_number(const char *variable, int other);
/* The number of processes that a launcher has started; 0: unknown. */
int ith_launcher_processes(const ith_launcher_kind *kind);
/* The number that a launcher gave this process; 0 without a launcher. */
int ith_launcher_process(void);
/* Whether this process may be one of several. */
bool ith_launcher_has_several(void);
/* Waits a moment if the number of this process is not 0. A launcher ends all processes when one has ended, and process
 * 0 may not have printed the error yet. */
void ith_launcher_let_first_print(void);

#endif
