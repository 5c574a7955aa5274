/* An allocator that has only so many allocations to give, for tests of what happens when there are no more. */
#ifndef ITH_TESTS_ALLOCATOR_H
#define ITH_TESTS_ALLOCATOR_H

#include <ithaca/ithaca.h>

#include <stdatomic.h>
#include <stdlib.h>

typedef struct limited_allocator {
    ith_allocator allocator;
    atomic_int_fast64_t left;
} limited_allocator;

static inline void *limited_allocate(void *user, size_t bytes, size_t alignment)
{
    limited_allocator *limited = user;
    void *pointer = NULL;
    if (atomic_fetch_sub(&limited->left, 1) <= 0 || posix_memalign(&pointer, alignment, bytes))
        return NULL;
    return pointer;
}

static inline void limited_release(void *user, void *pointer)
{
    (void)user;
    free(pointer);
}

/* A context that can allocate `count` times more, once it is made. NULL if it could not be made. limited must outlive
 * it. */
static inline ith_context *limited_context(limited_allocator *limited, int64_t count)
{
    limited->allocator = (ith_allocator){limited_allocate, limited_release, limited};
    atomic_init(&limited->left, 1);
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &limited->allocator;
    ith_context *context = NULL;
    if (ith_context_create(&options, &context))
        return NULL;
    atomic_store(&limited->left, count);
    return context;
}

#endif
