/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and sets members of a context, and of the state that a family of contexts (a root and its clones) shares. */
#include "context_state.h"

#include <string.h>
#include <unistd.h>

ith_status ith_context_check_process(ith_context *context)
{
    long long made = (long long)context->family->process, here = (long long)getpid();
    if (made == here)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "the context was made in process %lld and is used in its child %lld: threads do not survive a "
                    "fork; make contexts in the child, after exec or posix_spawn",
                    made, here);
}

long ith_context_note_team(const ith_context *context, long process)
{
    long noted = 0;
    return atomic_compare_exchange_strong(context->family->team_process, &noted, process) ? process : noted;
}

uint32_t ith_context_cpu(const ith_context *context)
{
    return context ? context->cpu : 0;
}

bool ith_context_is_family(const ith_context *context, const ith_context *other)
{
    return context->family == other->family;
}

int ith_context_rank(const ith_context *context)
{
    return context->rank;
}

void ith_context_set_rank(ith_context *context, int rank)
{
    context->rank = rank;
}

double ith_context_connect_limit(const ith_context *context)
{
    return context->connect_limit;
}

void ith_context_set_connect_limit(ith_context *context, double seconds)
{
    context->connect_limit = seconds;
}

ith_parallel_fn ith_context_parallel(const ith_context *context, void **user)
{
    *user = context->parallel_user;
    return context->parallel;
}

/* ---- State of the family --------------------------------------------------------------------------------------- */

void *ith_context_keep(ith_context *context, int64_t bytes, const char *what)
{
    const char *reason = "out of memory";
    void *block = NULL;
    if (bytes >= 0)
        block = ith_allocator_take(&context->allocator, (size_t)bytes, &reason);
    if (!block) {
        ith_fail(context, ITH_ERR_MEMORY, "%s for %s: %.1f MiB asked for", reason, what, (double)bytes / 1048576.0);
        return NULL;
    }
    return memset(block, 0, (size_t)bytes);
}

void ith_context_drop(ith_context *context, void *block)
{
    if (block)
        context->allocator.release(context->allocator.user, block);
}

struct ith_trace *ith_context_trace(const ith_context *context)
{
    return atomic_load_explicit(&context->family->trace, memory_order_acquire);
}

struct ith_trace *ith_context_set_trace(ith_context *context, struct ith_trace *trace)
{
    return atomic_exchange(&context->family->trace, trace);
}

struct ith_device_use *ith_context_device_use(const ith_context *context)
{
    return context->device;
}

void ith_context_set_device_use(ith_context *context, struct ith_device_use *device)
{
    context->device = device;
}

struct ith_observer *ith_context_observer(const ith_context *context)
{
    return context->observer;
}

void ith_context_set_observer(ith_context *context, struct ith_observer *observer)
{
    context->observer = observer;
}

struct ith_activity *ith_context_activity(const ith_context *context)
{
    return context->activity;
}

void ith_context_set_activity(ith_context *context, struct ith_activity *activity)
{
    context->activity = activity;
}

ith_kept **ith_context_lock_flights(ith_context *context)
{
    pthread_mutex_lock(&context->family->flights_lock);
    return &context->family->flights;
}

void ith_context_unlock_flights(ith_context *context)
{
    pthread_mutex_unlock(&context->family->flights_lock);
}

_Atomic(struct ith_lent_file *) *ith_context_lent(const ith_context *context)
{
    return &context->family->lent;
}

void *ith_context_lock_wisdom(ith_context *context, int64_t bytes)
{
    ith_family *shared = context->family;
    pthread_mutex_lock(&shared->wisdom_lock);
    if (!shared->wisdom)
        shared->wisdom = ith_context_keep(context, bytes, "wisdom");
    if (!shared->wisdom)
        pthread_mutex_unlock(&shared->wisdom_lock);
    return shared->wisdom;
}

void ith_context_unlock_wisdom(ith_context *context)
{
    pthread_mutex_unlock(&context->family->wisdom_lock);
}
