/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace file back: JSON by its grammar (RFC 8259), nothing let pass, and the events in it. */
#ifndef ITH_TESTS_TRACE_FILE_H
#define ITH_TESTS_TRACE_FILE_H

#include <stdbool.h>

typedef struct trace_event {
    char ph[8], name[64], cat[64], arg_name[128], arg_labels[64];
    double pid, tid, ts, dur, value; /* NAN: not there */
} trace_event;

typedef struct trace_file {
    trace_event *events;
    int count;
    double lost;
    const char *at; /* while it is read */
    bool in_args;
} trace_file;

static inline bool trace_value(trace_file *f, const char *key);

bool trace_value(trace_file *f, const char *key);

/* False: not JSON, or not a trace as the library writes them. events must be freed in any case. */
bool trace_file_parse(const char *text, trace_file *out);

#endif
