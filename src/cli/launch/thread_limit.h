/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the ranks and threads of a command. */
#ifndef ITH_CLI_THREAD_LIMIT_H
#define ITH_CLI_THREAD_LIMIT_H

#include <stdint.h>

/* The largest values of --ranks and --threads. The OpenMP runtime needs a stack for every thread that it starts. */
#define ITH_CLI_RANKS_MAX 1024
#define ITH_CLI_THREADS_MAX 4096

/* The number of threads that a process has without --threads, where this host runs `processes` processes: the number in
 * OMP_NUM_THREADS, or the process's share of the processors that its control group may use, as in a container. 0:
 * neither sets a limit. */
int ith_cli_limited_threads(int processes);
/* The threads that an option asks for; 0: ith_cli_limited_threads, or else OpenMP's default. */
int ith_cli_threads(int64_t asked);

/* Prepares for a computation with these ranks and threads (0: one rank, ith_cli_threads), and with `others`, threads
 * that do something else meanwhile: checks that all can be started, and makes them share a busy machine
 * (busy_machine.h). Prints errors and returns an exit status. */
int ith_cli_prepare_threads(int64_t ranks, int64_t threads, int others);

#endif
