/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to stop the computations of a context and its clones. */
#include "context_state.h"
#include "observer.h"

void ith_context_interrupt(ith_context *context)
{
    atomic_fetch_add(&context->family->interruptions, 1);
}

void ith_context_end_interruption(ith_context *context)
{
    atomic_fetch_sub(&context->family->interruptions, 1);
}

bool ith_context_interrupted(const ith_context *context)
{
    return atomic_load_explicit(&context->family->interruptions, memory_order_relaxed) > 0 ||
           (context->observer && ith_observer_stops(context->observer));
}

ith_status ith_fail_interrupted(ith_context *context)
{
    return ith_fail(context, ITH_ERR_INTERRUPTED, "stopped on request");
}

ith_status ith_context_check(ith_context *context)
{
    return ith_context_interrupted(context) ? ith_fail_interrupted(context) : ITH_OK;
}
