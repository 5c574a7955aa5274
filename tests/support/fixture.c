/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fixture.h"

ith_context *context;

int context_set_up(void **state)
{
    (void)state;
    return ith_context_create(NULL, &context);
}

int context_tear_down(void **state)
{
    (void)state;
    int64_t left = memory_of(context).current_bytes;
    ith_context_destroy(&context);
    return left != 0;
}

void check(ith_context *c, ith_status status)
{
    if (status)
        fail_msg("%s: %s", ith_status_name(status), ith_context_error(c));
}
