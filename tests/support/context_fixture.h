/* SPDX-License-Identifier: Apache-2.0 */
/* The context that the tests of a program share, or that each has to itself: for cmocka's set-up and tear-down. */
#ifndef ITH_TESTS_CONTEXT_FIXTURE_H
#define ITH_TESTS_CONTEXT_FIXTURE_H

#include "support/held.h"

#include <ithaca/ithaca.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static ith_context *context;

static inline int context_set_up(void **state)
{
    (void)state;
    return ith_context_create(NULL, &context);
}

/* Fails if anything made with the context is left. */
static inline int context_tear_down(void **state)
{
    (void)state;
    int64_t left = memory_of(context).current_bytes;
    ith_context_destroy(&context);
    return left != 0;
}

/* Ends the test with the sentence of a call that failed. */
static inline void check(ith_context *c, ith_status status)
{
    if (status)
        fail_msg("%s: %s", ith_status_name(status), ith_context_error(c));
}

#endif
