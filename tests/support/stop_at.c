/* SPDX-License-Identifier: Apache-2.0 */
#include "support/stop_at.h"

#include <stdatomic.h>

static atomic_int asked, first_yes;

bool __real_ith_context_interrupted(const ith_context *context);
bool __wrap_ith_context_interrupted(const ith_context *context);

bool __wrap_ith_context_interrupted(const ith_context *context)
{
    const int number = atomic_fetch_add(&asked, 1) + 1, first = atomic_load(&first_yes);
    return (first && number >= first) || __real_ith_context_interrupted(context);
}

void stop_at(int n)
{
    atomic_store(&asked, 0);
    atomic_store(&first_yes, n);
}

int stop_questions(void)
{
    return atomic_load(&asked);
}

bool stop_was_told(void)
{
    return atomic_load(&first_yes) && atomic_load(&asked) >= atomic_load(&first_yes);
}
