/* An allocator that can be told to fail: each allocation of a call is made to fail in turn, to see that every failure
 * is reported and nothing is lost. One thread at a time. */
#ifndef ITH_TESTS_FAILING_ALLOC_H
#define ITH_TESTS_FAILING_ALLOC_H

#include <ithaca/ithaca.h>

#include <stdlib.h>

typedef struct failing_alloc {
    int64_t calls;   /* so far */
    int64_t fail_at; /* the number of the call that fails, from 0; negative: none */
    int64_t held;    /* blocks not yet released */
} failing_alloc;

static inline void *failing_allocate(void *user, size_t bytes, size_t alignment)
{
    failing_alloc *state = user;
    void *pointer = NULL;
    if (state->calls++ == state->fail_at || posix_memalign(&pointer, alignment, bytes))
        return NULL;
    state->held++;
    return pointer;
}

static inline void failing_release(void *user, void *pointer)
{
    ((failing_alloc *)user)->held--;
    free(pointer);
}

/* A context whose memory comes from `state`, which is reset; NULL if it cannot be made. */
static inline ith_context *failing_context(failing_alloc *state)
{
    *state = (failing_alloc){.fail_at = -1};
    const ith_allocator allocator = {failing_allocate, failing_release, state};
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    ith_context *context = NULL;
    return ith_context_create(&options, &context) ? NULL : context;
}

/* Calls act once to count its allocations, then once for each of them with that one failing, then once more without
 * failure. The number of calls that did not do what they must: fail with ITH_ERR_MEMORY and hold no more memory than
 * before, or succeed where nothing failed. *allocations (may be NULL): how many there are in a call. */
static inline int64_t failing_each(ith_context *context, failing_alloc *state,
                                   ith_status (*act)(ith_context *context, void *user), void *user,
                                   int64_t *allocations)
{
    int64_t held = state->held, before = state->calls;
    state->fail_at = -1;
    int64_t wrong = act(context, user) != ITH_OK || state->held != held, count = state->calls - before;
    for (int64_t i = 0; i < count; i++) {
        state->fail_at = state->calls + i;
        wrong += act(context, user) != ITH_ERR_MEMORY || state->held != held;
    }
    state->fail_at = -1;
    wrong += act(context, user) != ITH_OK || state->held != held;
    if (allocations)
        *allocations = count;
    return wrong;
}

#endif
