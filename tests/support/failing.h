/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator that counts, refuses one allocation of your choice, and knows what has not been given back. */
#ifndef ITH_TESTS_FAILING_H
#define ITH_TESTS_FAILING_H

#include <ithaca/ithaca.h>

#include <stdatomic.h>
#include <stdlib.h>

typedef struct failing_allocator {
    atomic_long calls;   /* so far */
    long refuse;         /* the number of the call that fails, from 0; -1: none */
    atomic_long held;    /* blocks not yet given back */
    ith_allocator table; /* for ith_context_options */
} failing_allocator;

static inline void *failing_allocate(void *user, size_t bytes, size_t alignment)
{
    failing_allocator *self = user;
    void *block = NULL;
    if (atomic_fetch_add(&self->calls, 1) == self->refuse || posix_memalign(&block, alignment, bytes))
        return NULL;
    atomic_fetch_add(&self->held, 1);
    return block;
}

static inline void failing_release(void *user, void *block)
{
    failing_allocator *self = user;
    atomic_fetch_sub(&self->held, 1);
    free(block);
}

/* A context on this allocator, which must outlive it; NULL if call number `refuse` was the one for the context. */
static inline ith_context *failing_context(failing_allocator *self, long refuse)
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

#endif
