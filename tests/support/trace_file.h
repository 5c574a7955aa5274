/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace file back: checks that it follows the grammar of JSON (RFC 8259) exactly, and lists its events. */
#ifndef ITH_TESTS_TRACE_FILE_H
#define ITH_TESTS_TRACE_FILE_H

#include <stdbool.h>

typedef struct trace_event {
    char ph[8], name[64], cat[64], arg_name[128], arg_labels[64];
    double pid, tid, ts, dur, value; /* NAN: the event has no such member */
} trace_event;

typedef struct trace_file {
    trace_event *events;
    int count;
    double lost;
    const char *at; /* the next character while the text is read */
    bool in_args;
} trace_file;

/* Returns false if the text is not JSON, or not a trace as the library writes it. The caller frees out->events in any
 * case. */
bool trace_file_parse(const char *text, trace_file *out);

#endif
