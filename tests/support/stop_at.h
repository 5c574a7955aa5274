/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupts a context at a chosen question. The code under test asks ith_context_interrupted, which a test program
 * that calls these functions replaces: it is linked with -Wl,--wrap=ith_context_interrupted. */
#ifndef ITH_TESTS_STOP_AT_H
#define ITH_TESTS_STOP_AT_H

#include "base/context.h"

/* From now on question number n (counted from 1) and all later ones are answered with yes; 0: none is, but by the
 * context itself. */
void stop_at(int n);

/* How many questions were asked since the last stop_at, and whether one was answered with yes. */
int stop_questions(void);
bool stop_was_told(void);

#endif
