/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, clones and frees contexts.
 *
 * Contexts are counted by reference. The caller holds one reference, each object that was made with the context holds
 * one, and each clone holds one on the root. So contexts and objects may be destroyed in any order. */
#include "context_state.h"

#include "cpu.h"
#include "lent_files.h"
#include "sized.h"
#include "trace.h"

#include <string.h>
#include <unistd.h>

/* The process that has used a team of OpenMP's threads first; 0: none yet. libithaca_wan has a copy of this file, but
 * libithaca creates all roots, so contexts point to its variable in both libraries. */
static atomic_long team_process;

static ith_context *context_new(const ith_allocator *allocator, const char **reason)
{
    ith_context *context = ith_allocator_take(allocator, sizeof *context, reason);
    if (!context)
        return NULL;
    memset(context, 0, sizeof *context);
    context->allocator = *allocator;
    atomic_init(&context->holders, 1);
    atomic_flag_clear(&context->writing);
    return context;
}

static ith_status read_options(const ith_context_options *given, ith_context_options *options, ith_allocator *allocator)
{
    ith_status status =
        given ? ITH_SIZED_READ(NULL, ith_context_options, ITH_CONTEXT_OPTIONS_INIT, given, options) : ITH_OK;
    if (!status && (unsigned)options->log_level > ITH_LOG_DEBUG)
        status = ith_fail(NULL, ITH_ERR_ARGUMENT, "log_level %d is no ith_log_level", (int)options->log_level);
    if (status || !options->allocator)
        return status;
    *allocator = (ith_allocator)ITH_ALLOCATOR_INIT;
    status = ITH_SIZED_READ(NULL, ith_allocator, ITH_ALLOCATOR_INIT, options->allocator, allocator);
    if (!status && (!allocator->allocate || !allocator->release))
        status = ith_fail(NULL, ITH_ERR_ARGUMENT, "the ith_allocator has no function to %s",
                          allocator->allocate ? "release" : "allocate");
    return status;
}

ith_status ith_context_create(const ith_context_options *options, ith_context **out)
{
    if (!out)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    ith_context_options o = ITH_CONTEXT_OPTIONS_INIT;
    ith_allocator allocator = ith_system_allocator;
    uint32_t allowed;
    char sentence[ITH_ERROR_BYTES];
    ith_status status = read_options(options, &o, &allocator);
    if (status)
        return status;
    if (!ith_cpu_limit(&allowed, sentence, sizeof sentence))
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "%s", sentence);
    const char *reason;
    ith_context *context = context_new(&allocator, &reason);
    if (!context)
        return ith_fail(NULL, ITH_ERR_MEMORY, "%s for a context", reason);
    context->own.process = getpid();
    context->own.team_process = &team_process;
    context->root = context;
    context->own.wisdom_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context->own.flights_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context->family = &context->own;
    context->log = o.log;
    context->log_user = o.log_user;
    context->log_level = o.log_level;
    context->parallel = o.parallel;
    context->parallel_user = o.parallel_user;
    context->cpu = ith_cpu_detect(o.cpu_mask ? allowed & o.cpu_mask : allowed);
    *out = context;
    return ITH_OK;
}

ith_status ith_context_clone(ith_context *parent, ith_context **out)
{
    if (out)
        *out = NULL;
    if (!parent || !out)
        return ith_fail(parent, ITH_ERR_ARGUMENT, "%s is NULL", parent ? "out" : "parent");
    const char *reason;
    ith_context *context = context_new(&parent->allocator, &reason);
    if (!context)
        return ith_fail(parent, ITH_ERR_MEMORY, "%s for a rank's context", reason);
    context->log = parent->log;
    context->log_user = parent->log_user;
    context->log_level = parent->log_level;
    context->parallel = parent->parallel;
    context->parallel_user = parent->parallel_user;
    context->cpu = parent->cpu;
    context->rank = parent->rank;
    context->connect_limit = parent->connect_limit;
    context->observer = parent->observer;
    context->device = parent->device;
    context->family = parent->family;
    context->root = ith_context_hold(parent->root);
    *out = context;
    return ITH_OK;
}

static void family_release(ith_context *root)
{
    ith_trace_drop(root, ith_context_set_trace(root, NULL));
    ith_context_drop(root, root->own.wisdom);
    for (ith_kept *kept = root->own.flights, *next; kept; kept = next) {
        next = kept->next;
        ith_context_drop(root, kept);
    }
    pthread_mutex_destroy(&root->own.flights_lock);
    pthread_mutex_destroy(&root->own.wisdom_lock);
    ith_lent_files_free(root, atomic_load(&root->own.lent));
}

ith_context *ith_context_hold(ith_context *context)
{
    atomic_fetch_add_explicit(&context->holders, 1, memory_order_relaxed);
    return context;
}

void ith_context_release(ith_context *context)
{
    if (atomic_fetch_sub(&context->holders, 1) > 1)
        return;
    ith_context *root = context->root;
    ith_allocator allocator = context->allocator;
    if (root == context)
        family_release(context);
    allocator.release(allocator.user, context);
    if (root != context)
        ith_context_release(root);
}

void ith_context_destroy(ith_context **context)
{
    if (!context || !*context)
        return;
    ith_context_release(*context);
    *context = NULL;
}
