/* SPDX-License-Identifier: Apache-2.0 */
#include "support/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

ith_context *new_context(void)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    return context;
}

ith_memory_use memory_of(ith_context *context)
{
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    if (ith_context_memory(context, &use))
        use.current_bytes = use.peak_bytes = -1;
    return use;
}

static void *failing_allocate(void *user, size_t bytes, size_t alignment)
{
    failing_allocator *self = user;
    void *block = NULL;
    if (atomic_fetch_add(&self->calls, 1) == self->refuse || posix_memalign(&block, alignment, bytes))
        return NULL;
    memset(block, 0xff, bytes);
    atomic_fetch_add(&self->held, 1);
    return block;
}

static void failing_release(void *user, void *block)
{
    failing_allocator *self = user;
    atomic_fetch_sub(&self->held, 1);
    free(block);
}

ith_context *failing_context(failing_allocator *self, long refuse)
{
    atomic_store(&self->calls, 0);
    atomic_store(&self->held, 0);
    self->refuse = refuse;
    self->table = (ith_allocator){sizeof(ith_allocator), failing_allocate, failing_release, self};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &self->table;
    ith_context *ctx = NULL;
    return ith_context_create(&options, &ctx) ? NULL : ctx;
}

long refuse_every_allocation(allocating_fn fn, void *user, long step)
{
    for (long refuse = 1;; refuse += step) { /* call 0 allocates the context itself */
        failing_allocator allocator;
        ith_context *ctx = failing_context(&allocator, refuse);
        assert_non_null(ctx);
        ith_status status = fn(ctx, user);
        bool refused = atomic_load(&allocator.calls) > refuse;
        if (status && (!refused || status != ITH_ERR_MEMORY || !strstr(ith_context_error(ctx), "memory")))
            fail_msg("allocation %ld refused: %s: %s", refuse, ith_status_name(status), ith_context_error(ctx));
        assert_int_equal(memory_of(ctx).current_bytes, 0);
        ith_context_destroy(&ctx);
        assert_int_equal(atomic_load(&allocator.held), 0);
        if (!refused)
            return atomic_load(&allocator.calls) - 1;
    }
}
