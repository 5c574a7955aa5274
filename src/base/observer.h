/* SPDX-License-Identifier: Apache-2.0 */
/* An observer of a long computation: one callback shows progress, another asks whether to stop.
 *
 * A context has at most one observer, and its clones share it. One thread at a time calls the callbacks, and only a
 * thread that owns a context: never another member of an OpenMP team. */
#ifndef ITH_BASE_OBSERVER_H
#define ITH_BASE_OBSERVER_H

#include "context.h"

#include <pthread.h>
#include <stdatomic.h>

#define ITH_OBSERVER_ASK_SECONDS 0.05 /* between two calls of should_stop */
#define ITH_OBSERVER_SHOW_SECONDS 1.0 /* between two calls of show, at most, as long as the computation asks */

typedef struct ith_observer {
    void (*show)(void *user, int stage, int64_t done, int64_t total); /* NULL: progress is not shown */
    bool (*should_stop)(void *user);                                  /* NULL: the computation never stops */
    void *user;
    /* Private to observer.c: */
    pthread_mutex_t lock;
    atomic_bool stopped;
    _Atomic double next_look; /* when either callback is due, by ith_clock_seconds */
    double next_ask, next_show;
    int stage; /* last shown; -1: none */
    int64_t done, total;
    char activity[96]; /* what is being computed, for the sentence of an interruption; "": not known */
} ith_observer;

/* The caller has set show, should_stop and user; initialises the other members. */
void ith_observer_open(ith_observer *observer);
void ith_observer_close(ith_observer *observer);

/* Makes the calls that are due, and returns whether should_stop has ever returned true. It is cheap: long loops call it
 * every few milliseconds through ith_context_interrupted. */
bool ith_observer_stops(ith_observer *observer);

/* Shows progress to the context's observer, if it has one. */
void ith_observer_show(const ith_context *context, int stage, int64_t done, int64_t total);

/* The part of a stage's progress that a piece of work accounts for: from `begin` to `end` of `total`. NULL or all
 * zeros: the piece shows nothing. */
typedef struct ith_span {
    int stage;
    int64_t begin, end, total;
} ith_span;
/* Shows that `done` of `count` parts of the piece are done. */
void ith_span_show(const ith_context *context, const ith_span *span, int64_t done, int64_t count);

/* Sets the activity of the context's observer, if there is one. */
void ith_observer_set_activity(const ith_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts the activity before the sentence of ITH_ERR_INTERRUPTED. Returns status. */
ith_status ith_observer_say_activity(ith_context *context, ith_status status);

/* Asks the context's observer at once, without regard to the interval. Returns ith_context_check. */
ith_status ith_observer_ask(ith_context *context);

#endif
