/* SPDX-License-Identifier: Apache-2.0 */
/* One context for all tests of a program: cmocka_run_group_tests(tests, begin_context, end_context). */
#ifndef ITH_TESTS_SHARED_CONTEXT_H
#define ITH_TESTS_SHARED_CONTEXT_H

#include <ithaca/ithaca.h>

static ith_context *context;

static inline int begin_context(void **state)
{
    (void)state;
    return ith_context_create(NULL, &context) == ITH_OK ? 0 : -1;
}

static inline int end_context(void **state)
{
    (void)state;
    ith_context_destroy(&context);
    return 0;
}

#endif
