/* SPDX-License-Identifier: Apache-2.0 */
/* How many ranks and threads a command may ask for. */
#ifndef ITH_CLI_THREAD_LIMIT_H
#define ITH_CLI_THREAD_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* The most that options take. OpenMP's runtime needs some stack for every thread that it starts. */
#define ITH_CLI_RANKS_MAX 1024
#define ITH_CLI_THREADS_MAX 4096

/* The threads that will compute: `threads`, or as many as OpenMP takes if it is 0; at least one a rank. */
int64_t ith_cli_thread_count(int64_t ranks, int64_t threads);

/* Whether the system lets this process start `count` threads more: starts them and lets them end. *most: how many it
 * let start. */
bool ith_cli_can_start(int64_t count, int64_t *most);

/* Before a command computes with so many ranks and threads (0: 1 and all cores): checks that they can be started, and
 * sees to it that they share a busy machine (busy_machine.h). Prints what is wrong and returns an exit status. */
int ith_cli_prepare_threads(int64_t ranks, int64_t threads);

#endif
