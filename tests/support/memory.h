/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a context counts, and an allocator that counts its calls and blocks and refuses one allocation. */
#ifndef ITH_TESTS_MEMORY_H
#define ITH_TESTS_MEMORY_H

#include <ithaca/ithaca.h>

#include <stdatomic.h>

/* Held by everything that was made with the context and its clones; -1 if that cannot be asked. */
ith_memory_use memory_of(ith_context *context);

typedef struct failing_allocator {
    atomic_long calls;   /* so far */
    long refuse;         /* the number of the call that fails, from 0; -1: none */
    atomic_long held;    /* blocks not yet given back */
    ith_allocator table; /* for ith_context_options */
} failing_allocator;

/* A context on this allocator, which must outlive it; NULL if call number `refuse` was the one for the context. */
ith_context *failing_context(failing_allocator *self, long refuse);

/* Returns the status of what was tried, and holds nothing afterwards. */
typedef ith_status (*allocating_fn)(ith_context *ctx, void *user);

/* Calls fn with every step-th of its allocations refused, each time with a context of its own, and at last with none. A
 * refusal must end in ITH_ERR_MEMORY and a sentence that says so, or be got over; nothing may be lost. Returns how many
 * allocations fn makes. */
long refuse_every_allocation(allocating_fn fn, void *user, long step);

#endif
