/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the callbacks of an observer, at most every few milliseconds and by one thread at a time (observer.h). A thread
 * that finds the lock taken goes on computing, because another thread is making the calls. */
#include "observer.h"

#include "clock.h"
#include "context.h"
#include "spin_lock.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ith_observer_open(ith_observer *observer)
{
    observer->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_init(&observer->stopped, false);
    atomic_init(&observer->next_look, 0);
    observer->next_ask = 0, observer->next_show = INFINITY;
    observer->stage = -1;
    observer->activity[0] = '\0';
}

void ith_observer_close(ith_observer *observer)
{
    pthread_mutex_destroy(&observer->lock);
}

/* plan_look, ask and show are called with the observer's lock held. */

/* Sets the time before which ith_observer_stops calls no callback again. */
static void plan_look(ith_observer *o)
{
    atomic_store_explicit(&o->next_look, fmin(o->next_ask, o->next_show), memory_order_relaxed);
}

static void ask(ith_observer *o)
{
    if (o->should_stop && o->should_stop(o->user))
        atomic_store(&o->stopped, true);
    o->next_ask = o->should_stop ? ith_clock_seconds() + ITH_OBSERVER_ASK_SECONDS : INFINITY;
    plan_look(o);
}

static void show(ith_observer *o)
{
    o->show(o->user, o->stage, o->done, o->total);
    o->next_show = ith_clock_seconds() + ITH_OBSERVER_SHOW_SECONDS;
    plan_look(o);
}

bool ith_observer_stops(ith_observer *o)
{
    if (atomic_load_explicit(&o->stopped, memory_order_relaxed))
        return true;
    if (omp_get_thread_num())
        return false;
    if (o->tick)
        o->tick(o->user);
    if (ith_clock_seconds() < atomic_load_explicit(&o->next_look, memory_order_relaxed) ||
        pthread_mutex_trylock(&o->lock))
        return false;
    double now = ith_clock_seconds();
    if (now >= o->next_ask)
        ask(o);
    if (now >= o->next_show)
        show(o);
    pthread_mutex_unlock(&o->lock);
    return atomic_load_explicit(&o->stopped, memory_order_relaxed);
}

void ith_observer_show(const ith_context *context, int stage, int64_t done, int64_t total)
{
    ith_observer *o = ith_context_observer(context);
    if (!o || !o->show)
        return;
    pthread_mutex_lock(&o->lock);
    o->stage = stage, o->done = done, o->total = total;
    show(o);
    pthread_mutex_unlock(&o->lock);
}

void ith_span_show(const ith_context *context, const ith_span *span, int64_t done, int64_t count)
{
    if (!span || !span->total || count < 1)
        return;
    double share = (double)(span->end - span->begin) * ((double)done / (double)count);
    ith_observer_show(context, span->stage, span->begin + (int64_t)share, span->total);
}

void ith_observer_ask(const ith_context *context)
{
    ith_observer *o = ith_context_observer(context);
    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    ask(o);
    pthread_mutex_unlock(&o->lock);
}

void ith_observer_set_activity(const ith_context *context, const char *format, ...)
{
    ith_observer *o = ith_context_observer(context);
    ith_activity *activity = ith_context_activity(context);
    char text[ITH_ACTIVITY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (o)
        memcpy(o->activity, text, sizeof text);
    if (!activity)
        return;
    ith_spin_lock(&activity->writing);
    memcpy(activity->text, text, sizeof text);
    ith_spin_unlock(&activity->writing);
    ith_observer_set_part(context, 0, 0);
}

void ith_observer_set_part(const ith_context *context, int64_t part, int64_t parts)
{
    ith_activity *activity = ith_context_activity(context);
    if (!activity)
        return;
    atomic_store_explicit(&activity->part, part, memory_order_relaxed);
    atomic_store_explicit(&activity->parts, parts, memory_order_relaxed);
}

void ith_activity_read(ith_activity *activity, char text[ITH_ACTIVITY_BYTES])
{
    ith_spin_lock(&activity->writing);
    memcpy(text, activity->text, ITH_ACTIVITY_BYTES);
    ith_spin_unlock(&activity->writing);
}

ith_status ith_observer_say_activity(ith_context *context, ith_status status)
{
    const ith_observer *o = ith_context_observer(context);
    return status == ITH_ERR_INTERRUPTED && o && *o->activity ? ith_fail_in(context, status, "%s", o->activity)
                                                              : status;
}
