/* SPDX-License-Identifier: Apache-2.0 */
/* What a family of contexts did when: spans of time and counters, a process a rank (ith_context_rank) in the trace.
 *
 *     double begin = ith_trace_begin(context);
 *     ... compute ...
 *     ith_trace_end(context, begin, "attend", "compute");
 *
 * Recording allocates nothing and takes no lock: any number of threads may do so at once. Without a trace it is a load
 * and a branch. Names and categories are kept as pointers (string literals), and hold nothing that JSON would escape.
 */
#ifndef ITH_BASE_TRACE_H
#define ITH_BASE_TRACE_H

#include "context.h"

/* The category of what is under way while the rank does something else: these spans have rows of their own. Spans of
 * all other categories (compute, wait, ...) are what the rank itself does, one inside the other or one after the other.
 */
#define ITH_TRACE_EXCHANGE "exchange"

/* Now; negative if nothing is recorded. */
double ith_trace_begin(const ith_context *context);
/* A span from `begin` until now; none if `begin` is negative. */
void ith_trace_end(const ith_context *context, double begin, const char *name, const char *category);
/* The counter's value from now on. A value that is not finite is not recorded. */
void ith_trace_counter(const ith_context *context, const char *name, double value);

#endif
