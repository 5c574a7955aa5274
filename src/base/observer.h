/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever follows a long computation: is told how far it has come, and is asked whether it shall stop.
 *
 * A context has an observer or none; its clones have the same. Both callbacks are called by one thread at a time, and
 * only by threads that own a context: never by the other threads of an OpenMP team. */
#ifndef ITH_BASE_OBSERVER_H
#define ITH_BASE_OBSERVER_H

#include "context.h"

#include <pthread.h>
#include <stdatomic.h>

#define ITH_OBSERVER_ASK_SECONDS 0.05 /* between two calls of should_stop */
#define ITH_OBSERVER_SHOW_SECONDS 1.0 /* the longest silence of show while a computation looks at its observer */

typedef struct ith_observer {
    void (*show)(void *user, int stage, int64_t done, int64_t total); /* NULL: nobody wants to know */
    bool (*should_stop)(void *user);                                  /* NULL: never */
    void *user;
    /* The rest is the observer's own. */
    pthread_mutex_t lock;
    atomic_bool stopped;
    _Atomic double next_look; /* when either callback is due, by ith_clock_seconds */
    double next_ask, next_show;
    int stage; /* last shown; -1: none */
    int64_t done, total;
} ith_observer;

/* show, should_stop and user are set; the rest is made ready. */
void ith_observer_open(ith_observer *observer);
void ith_observer_close(ith_observer *observer);

/* What ith_context_interrupted does about an observer: makes the calls that are due, and says whether the answer has
 * ever been to stop. Costs little; long loops call it every few milliseconds. */
bool ith_observer_stops(ith_observer *observer);

/* Tells the context's observer, if there is one, how far it is. */
void ith_observer_show(const ith_context *context, int stage, int64_t done, int64_t total);

/* The place of a piece of work within its stage: it goes from `begin` to `end` of `total`. NULL, or all zero:
 * nothing is shown. */
typedef struct ith_span {
    int stage;
    int64_t begin, end, total;
} ith_span;
/* `done` of `count` parts of the piece are done. */
void ith_span_show(const ith_context *context, const ith_span *span, int64_t done, int64_t count);

/* Asks the context's observer now, whenever it was asked before. Returns as ith_context_check. */
ith_status ith_observer_ask(ith_context *context);

#endif
