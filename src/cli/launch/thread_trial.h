/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether the system allows the process more threads. */
#ifndef ITH_CLI_THREAD_TRIAL_H
#define ITH_CLI_THREAD_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* Starts `count` threads and ends them. Returns whether the system allowed all of them, with the reason in errno if
 * not. *most becomes the number that it allowed. */
bool ith_cli_can_start(int64_t count, int64_t *most);

#endif
