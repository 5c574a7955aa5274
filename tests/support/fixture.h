/* SPDX-License-Identifier: Apache-2.0 */
/* The context that the tests of a program share, or that each test has to itself: for cmocka's set-up and tear-down. */
#ifndef ITH_TESTS_FIXTURE_H
#define ITH_TESTS_FIXTURE_H

#include "support/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

extern ith_context *context;

int context_set_up(void **state);
/* Destroys the context. Fails if something still holds memory of it. */
int context_tear_down(void **state);

/* Ends the test with the sentence of a call that failed. */
void check(ith_context *c, ith_status status);

#endif
