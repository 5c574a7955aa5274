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

#define ITH_TRACE_HOST 64 /* bytes of the name of a host */

/* The category of transfers that are in flight while the rank does something else. The trace shows them in rows of
 * their own. Intervals of other categories (compute, load, ...) show the activity of the rank itself: they nest or
 * follow one another. */
#define ITH_TRACE_EXCHANGE "exchange"
/* The category of intervals in which a rank waits for other ranks. They have a separate row, too. */
#define ITH_TRACE_WAIT "wait"

/* The present time in seconds; negative if no trace is recorded. */
double ith_trace_begin(const ith_context *context);
/* Records the time interval from `begin` until now, unless `begin` is negative or earlier than the trace. */
void ith_trace_end(const ith_context *context, double begin, const char *name, const char *category);
/* Records a time interval of a simulated rank. Times are seconds from the beginning of the trace on. */
void ith_trace_simulated(const ith_context *context, int rank, double begin, double end, const char *name,
                         const char *category);
/* Records that a counter has this value from now on. Infinite values and NaN are not recorded. */
void ith_trace_counter(const ith_context *context, const char *name, double value);

/* Frees a trace. trace may be NULL. */
void ith_trace_drop(ith_context *context, struct ith_trace *trace);

/* ---- Several processes: one file with one clock, the clock of rank 0's process ---- */

/* One comparison of this process's clock with the common clock. */
typedef struct ith_trace_sample {
    double at;     /* the time of this process's clock */
    double offset; /* the common time minus the time of this process's clock */
    double error;  /* the offset is wrong by at most this much */
} ith_trace_sample;

/* When the recording began, by the common clock as far as it is known; infinite if nothing is recorded. */
double ith_trace_begun(const ith_context *context);
/* Sets the beginning of the file's time, by the common clock: when the first process began to record. This function and
 * the two below do nothing if nothing is recorded. */
void ith_trace_set_zero(ith_context *context, double zero);
/* Sets the name of this process's host, which the file shows beside its ranks. */
void ith_trace_set_host(ith_context *context, const char *host);
/* Adds a sample of the clock: the first and the last one count. */
void ith_trace_set_clock(ith_context *context, const ith_trace_sample *sample);
/* Packs the recorded events, by the common clock, for another process. *out is to be freed with ith_free. A trace must
 * be recorded, as for the next function. */
ith_status ith_trace_pack(ith_context *context, void **out, int64_t *bytes);
/* Adds a package of another process to this trace. ITH_ERR_FORMAT if it is none. */
ith_status ith_trace_add(ith_context *context, const void *package, int64_t bytes);

/* A function that gets the name, the beginning and the end (ith_clock_seconds) of every time interval, on the thread
 * that ends it. */
typedef void (*ith_trace_listen_fn)(void *user, const char *name, double begin, double end);
/* From now on, `listen` gets the intervals of the context and its clones, and nothing is recorded. Sets *before to the
 * trace that was recorded until now, or to NULL. */
ith_status ith_trace_listen(ith_context *context, ith_trace_listen_fn listen, void *user, struct ith_trace **before);
/* Ends ith_trace_listen, and records the trace `before` again. No thread may be computing during these two calls. */
void ith_trace_stop_listening(ith_context *context, struct ith_trace *before);

#endif
