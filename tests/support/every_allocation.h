/* SPDX-License-Identifier: Apache-2.0 */
/* What a call does when memory runs out, tried with each of its allocations in turn. */
#ifndef ITH_TESTS_EVERY_ALLOCATION_H
#define ITH_TESTS_EVERY_ALLOCATION_H

#include "support/failing.h"
#include "support/held.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Returns the status of what was tried, and holds nothing afterwards. */
typedef ith_status (*allocating_fn)(ith_context *ctx, void *user);

/* Calls fn with every step-th of its allocations refused, each time with a context of its own, and at last with none. A
 * refusal must end in ITH_ERR_MEMORY and a sentence that says so, or be got over; nothing may be lost. Returns how many
 * allocations fn makes. */
static inline long refuse_every_allocation(allocating_fn fn, void *user, long step)
{
    for (long refuse = 1;; refuse += step) { /* 0 is the context's own */
        failing_allocator allocator;
        ith_context *ctx = failing_context(&allocator, refuse);
        assert_non_null(ctx);
        ith_status status = fn(ctx, user);
        bool refused = atomic_load(&allocator.calls) > refuse;
        assert_true(status == ITH_OK || (refused && status == ITH_ERR_MEMORY));
        assert_true(!status || strstr(ith_context_error(ctx), "memory"));
        assert_int_equal(memory_of(ctx).current_bytes, 0);
        ith_context_destroy(&ctx);
        assert_int_equal(atomic_load(&allocator.held), 0);
        if (!refused)
            return atomic_load(&allocator.calls) - 1;
    }
}

#endif
