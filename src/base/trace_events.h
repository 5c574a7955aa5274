/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a trace. trace_record.c records them, and trace_file.c writes the file. */
#ifndef ITH_BASE_TRACE_EVENTS_H
#define ITH_BASE_TRACE_EVENTS_H

#include "trace.h"

#include <stdatomic.h>

typedef enum ith_trace_kind { ITH_TRACE_NONE = 0, ITH_TRACE_SPAN, ITH_TRACE_COUNTER } ith_trace_kind;

/* A recorded event: an interval of time, or a value of a counter. */
typedef struct ith_trace_event {
    const char *name, *category;
    double begin;  /* seconds, by ith_clock_seconds */
    double amount; /* the end of the interval in seconds, or the value of the counter */
    int rank;
    atomic_int kind; /* an ith_trace_kind, stored after all other members, with release order */
} ith_trace_event;

/* The process in which events were recorded. */
typedef struct ith_trace_origin {
    char host[ITH_TRACE_HOST]; /* "": the run has one process, or the host is not known */
    double clock_error;        /* the most by which common times are wrong, in seconds */
} ith_trace_origin;

/* The events of another process, whose times are by the common clock. */
typedef struct ith_trace_others {
    struct ith_trace_others *next;
    ith_trace_origin origin;
    int64_t count, lost;
    ith_trace_event events[]; /* [count]; the text of their names lies behind */
} ith_trace_others;

/* A trace, with room for `capacity` events. */
typedef struct ith_trace {
    int64_t capacity;
    ith_trace_listen_fn listen; /* gets every interval, which is then not recorded; NULL: intervals are recorded */
    void *listen_user;
    double begun; /* when recording began, by ith_clock_seconds */
    double zero;  /* the beginning of the file's time, by the common clock; no event begins earlier */
    ith_trace_origin origin;
    int sample_count; /* 0 to 2 */
    ith_trace_sample samples[2];
    ith_trace_others *others;
    /* number of events so far, including events beyond the capacity, which are lost */
    atomic_int_fast64_t claimed;
    ith_trace_event events[];
} ith_trace;

/* The common time of a time of this process. Between the two samples of the clock the offset changes linearly; before
 * the first sample and after the last one it stays as in that sample. */
double ith_trace_common(const ith_trace *trace, double seconds);

#endif
