/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of a context and its clones: time intervals, and counters, of each rank (ith_context_rank).
 *
 *     double begin = ith_trace_begin(context);
 *     ... compute ...
 *     ith_trace_end(context, begin, "attend", "compute");
 *
 * Recording allocates nothing and takes no lock, and any number of threads may record at once. If there is no trace, a
 * call costs a load and a branch. Names and categories are stored as pointers: they must be string literals, without
 * characters that JSON escapes. */
#ifndef ITH_BASE_TRACE_H
#define ITH_BASE_TRACE_H

#include "context.h"

/* The category of transfers that are in flight while the rank does something else. The trace shows them in rows of
 * their own. Intervals of other categories (compute, wait, ...) show the activity of the rank itself: they nest or
 * follow one another. */
#define ITH_TRACE_EXCHANGE "exchange"

/* The present time in seconds; negative if no trace is recorded. */
double ith_trace_begin(const ith_context *context);
/* Records the time interval from `begin` until now. If `begin` is negative, it records nothing. */
void ith_trace_end(const ith_context *context, double begin, const char *name, const char *category);
/* Records that a counter has this value from now on. Infinite values and NaN are not recorded. */
void ith_trace_counter(const ith_context *context, const char *name, double value);

/* A function that gets the name of every time interval, its begin and its end (ith_clock_seconds), from the thread that
 * ends it. */
typedef void (*ith_trace_listen_fn)(void *user, const char *name, double begin, double end);
/* From now on, `listen` gets the intervals of the context and its clones, and nothing is recorded. Sets *before to the
 * trace that was recorded until now, or to NULL. */
ith_status ith_trace_listen(ith_context *context, ith_trace_listen_fn listen, void *user, struct ith_trace **before);
/* Ends ith_trace_listen, and records the trace `before` again. No thread may be computing during these two calls. */
void ith_trace_stop_listening(ith_context *context, struct ith_trace *before);

#endif
