/* SPDX-License-Identifier: Apache-2.0 */
/* A thread with a small stack, as in programs with very many threads. An overflow ends the program. */
#ifndef ITH_TESTS_SMALL_STACK_H
#define ITH_TESTS_SMALL_STACK_H

#include <stdbool.h>
#include <stddef.h>

enum { SMALL_STACK_BYTES = 24 << 10 }; /* three quarters of the stack that ithaca.h asks for */

/* Whether stack frames have their usual size. With a sanitizer they are several times as large. */
bool stack_is_usual(void);
/* Calls work(user) in a thread with a stack of this size, and waits for it. */
void run_on_stack(size_t bytes, void *(*work)(void *user), void *user);

#endif
