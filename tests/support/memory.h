/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a context counts, and an allocator that counts its calls and blocks and refuses one allocation. */
#ifndef ITH_TESTS_MEMORY_H
#define ITH_TESTS_MEMORY_H

#include <ithaca/ithaca.h>

#include <stdatomic.h>

/* The memory that everything made with the context and its clones holds (ith_context_memory); all -1 if the question
 * fails. */
ith_memory_use memory_of(ith_context *context);

/* Makes a context without options. */
ith_context *new_context(void);

typedef struct failing_allocator {
    atomic_long calls;   /* number of calls of `allocate` so far */
    long refuse;         /* the number of the call that fails, from 0; -1: none */
    atomic_long held;    /* number of blocks that are not released yet */
    ith_allocator table; /* for ith_context_options */
} failing_allocator;

/* Makes a context with this allocator, which must outlive it. All bytes of its memory are 0xff at first: NaN as f32,
 * bf16 and f16. NULL if the context could not be allocated, because `refuse` is 0. */
ith_context *failing_context(failing_allocator *self, long refuse);

/* A function that tries something with a context. It returns the status, and holds no memory afterwards. */
typedef ith_status (*allocating_fn)(ith_context *ctx, void *user);

/* Calls fn many times, each time with a new context whose allocator refuses one allocation: number 1, 1 + step, 1 + 2
 * step and so on, until fn makes fewer allocations. If an allocation is refused, fn must fail with ITH_ERR_MEMORY and a
 * sentence about memory, or succeed without it. No memory may be left. Returns the number of allocations that fn
 * makes. */
long refuse_every_allocation(allocating_fn fn, void *user, long step);

#endif
