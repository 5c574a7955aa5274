/* SPDX-License-Identifier: Apache-2.0 */
/* An observer of a long computation has three callbacks: one shows progress, one asks whether to stop, and one (tick)
 * does some work now and then.
 *
 * A context has at most one observer, which its clones share. Only threads that own a context call the callbacks, never
 * another member of an OpenMP team. One thread at a time calls the first two. */
#ifndef ITH_BASE_OBSERVER_H
#define ITH_BASE_OBSERVER_H

#include <ithaca/ithaca.h>

#include <pthread.h>
#include <stdatomic.h>

#define ITH_OBSERVER_ASK_SECONDS 0.05 /* seconds between two calls of should_stop */
/* seconds after which ith_observer_stops calls `show` again */
#define ITH_OBSERVER_SHOW_SECONDS 1.0

#define ITH_ACTIVITY_BYTES 96

/* The computation of a rank at this moment, for the flight record of its group. Any thread may read it while the rank
 * changes it. */
typedef struct ith_activity {
    atomic_flag writing;           /* protects `text` */
    char text[ITH_ACTIVITY_BYTES]; /* the name of the computation, such as "denoising step 3 of 50" */
    /* the number of the computation's part under way, such as a layer, from 1, and of all parts; 0: it has none */
    _Atomic int64_t part, parts;
} ith_activity;

/* An observer: its callbacks, and the state of its calls. */
typedef struct ith_observer {
    void (*show)(void *user, int stage, int64_t done, int64_t total); /* NULL: progress is not shown */
    /* asks whether to stop; NULL: the computation is never stopped */
    bool (*should_stop)(void *user);
    /* The thread that owns the context calls this function whenever a loop asks whether to stop, which is every few
     * milliseconds. NULL: there is none. */
    void (*tick)(void *user);
    void *user;
    /* The members below are private to observer.c. */
    pthread_mutex_t lock;
    atomic_bool stopped;
    _Atomic double next_look;   /* time when the next callback is due (ith_clock_seconds) */
    double next_ask, next_show; /* times when should_stop and show are due */
    int stage;                  /* stage (such as ITH_STAGE_TEXT) of the last call of `show`; -1: none yet */
    int64_t done, total;
    char activity[ITH_ACTIVITY_BYTES]; /* the name of the computation, for the error sentence of an interruption; "":
                                          none */
} ith_observer;

/* Initialises the private members. The caller has set show, should_stop, tick and user. */
void ith_observer_open(ith_observer *observer);
void ith_observer_close(ith_observer *observer);

/* Calls the callbacks that are due, and returns whether should_stop has ever returned true. It costs little: long loops
 * call it every few milliseconds through ith_context_interrupted. */
bool ith_observer_stops(ith_observer *observer);

/* Shows progress to the context's observer, if it has one. */
void ith_observer_show(const ith_context *context, int stage, int64_t done, int64_t total);

/* A range of a stage's progress: some work that shows progress by it moves the stage from `begin` to `end`, of `total`.
 * If it is NULL or all zeros, the work shows no progress. */
typedef struct ith_span {
    int stage;
    int64_t begin, end, total;
} ith_span;
/* Shows that `done` of the `count` parts of some work are done. span: the range of the progress that this work
 * covers. */
void ith_span_show(const ith_context *context, const ith_span *span, int64_t done, int64_t count);

/* Notes the name of the computation that begins: for the error sentence of an interruption, if the context has an
 * observer, and for the flight record of the rank, if it is in a group. */
void ith_observer_set_activity(const ith_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Notes the part of the computation that begins, such as a layer: its number, from 1, and the number of all parts. */
void ith_observer_set_part(const ith_context *context, int64_t part, int64_t parts);
/* Copies the text of an activity while its rank may change it. */
void ith_activity_read(ith_activity *activity, char text[ITH_ACTIVITY_BYTES]);
/* If status is ITH_ERR_INTERRUPTED, puts the observer's activity before the error sentence. Returns status. */
ith_status ith_observer_say_activity(ith_context *context, ith_status status);

/* Calls should_stop of the context's observer now, even if it is not due. */
void ith_observer_ask(const ith_context *context);

#endif
