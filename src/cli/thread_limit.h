/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the ranks and threads of a command. */
#ifndef ITH_CLI_THREAD_LIMIT_H
#define ITH_CLI_THREAD_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* The largest values of --ranks and --threads. The OpenMP runtime needs a stack for every thread that it starts. */
#define ITH_CLI_RANKS_MAX 1024
#define ITH_CLI_THREADS_MAX 4096

/* The threads that an option asks for; OpenMP's default for 0. */
int ith_cli_threads(int64_t asked);
/* The number of threads that will compute: `threads`, or OpenMP's default for 0; at least one per rank. */
int64_t ith_cli_thread_count(int64_t ranks, int64_t threads);

/* Starts `count` threads and ends them. Returns whether the system allowed all of them, with the reason in errno if
 * not. *most becomes the number that it allowed. */
bool ith_cli_can_start(int64_t count, int64_t *most);

/* Prepares for a computation with these ranks and threads (0: one rank, all cores), and with `others`, threads that do
 * something else meanwhile: checks that all can be started, and makes them share a busy machine (busy_machine.h).
 * Prints errors and returns an exit status. */
int ith_cli_prepare_threads(int64_t ranks, int64_t threads, int others);

#endif
