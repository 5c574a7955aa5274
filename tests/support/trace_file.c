/* SPDX-License-Identifier: Apache-2.0 */
#include "support/trace_file.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool trace_take(trace_file *f, const char *token)
{
    while (*f->at && strchr(" \n\r\t", *f->at))
        f->at++;
    size_t bytes = strlen(token);
    if (strncmp(f->at, token, bytes))
        return false;
    f->at += bytes;
    return true;
}

static bool trace_string(trace_file *f, char *out, size_t out_bytes)
{
    size_t length = 0;
    if (!trace_take(f, "\""))
        return false;
    for (; *f->at != '"'; f->at++) {
        if ((unsigned char)*f->at < 0x20 || *f->at == '\\' || length + 1 >= out_bytes) /* the library escapes nothing */
            return false;
        out[length++] = *f->at;
    }
    out[length] = '\0';
    f->at++;
    return true;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)?; the library writes no exponents. */
static bool trace_number(trace_file *f, double *out)
{
    const char *begin = f->at + (*f->at == '-'), *end = begin;
    while (isdigit((unsigned char)*end))
        end++;
    if (end == begin || (*begin == '0' && end > begin + 1))
        return false;
    if (*end == '.') {
        if (!isdigit((unsigned char)*++end))
            return false;
        while (isdigit((unsigned char)*end))
            end++;
    }
    *out = strtod(f->at, NULL);
    f->at = end;
    return true;
}

static void trace_keep_text(trace_event *e, const char *key, const char *text, bool in_args)
{
    char *field = NULL;
    if (!strcmp(key, "name"))
        field = in_args ? e->arg_name : e->name;
    else if (!strcmp(key, "labels") && in_args)
        field = e->arg_labels;
    else if (!strcmp(key, "cat"))
        field = e->cat;
    else if (!strcmp(key, "ph") && strlen(text) < sizeof e->ph)
        field = e->ph;
    if (field)
        strcpy(field, text);
}

static void trace_keep_number(trace_file *f, const char *key, double number)
{
    trace_event *e = f->count ? &f->events[f->count - 1] : NULL;
    if (!strcmp(key, "lost_events"))
        f->lost = number;
    else if (e && !strcmp(key, "pid"))
        e->pid = number;
    else if (e && !strcmp(key, "tid"))
        e->tid = number;
    else if (e && !strcmp(key, "ts"))
        e->ts = number;
    else if (e && !strcmp(key, "dur"))
        e->dur = number;
    else if (e && !strcmp(key, "value"))
        e->value = number;
}

static bool trace_value(trace_file *f, const char *key);

static bool trace_members(trace_file *f)
{
    if (trace_take(f, "}"))
        return true;
    do {
        char key[64];
        if (!trace_string(f, key, sizeof key) || !trace_take(f, ":"))
            return false;
        bool args = !strcmp(key, "args");
        f->in_args |= args;
        if (!trace_value(f, key))
            return false;
        f->in_args &= !args;
    } while (trace_take(f, ","));
    return trace_take(f, "}");
}

static bool trace_elements(trace_file *f)
{
    if (trace_take(f, "]"))
        return true;
    do {
        bool full = (f->count & (f->count - 1)) == 0; /* room doubles */
        if (full)
            f->events = realloc(f->events, (size_t)(2 * f->count + 1) * sizeof *f->events);
        if (!f->events)
            return false;
        f->events[f->count++] = (trace_event){.pid = NAN, .tid = NAN, .ts = NAN, .dur = NAN, .value = NAN};
        if (!trace_take(f, "{") || !trace_members(f))
            return false;
    } while (trace_take(f, ","));
    return trace_take(f, "]");
}

static bool trace_value(trace_file *f, const char *key)
{
    char text[64];
    double number;
    if (trace_take(f, "{"))
        return trace_members(f);
    if (trace_take(f, "["))
        return !strcmp(key, "traceEvents") && trace_elements(f);
    if (*f->at == '"') {
        if (!trace_string(f, text, sizeof text))
            return false;
        if (f->count)
            trace_keep_text(&f->events[f->count - 1], key, text, f->in_args);
        return true;
    }
    if (!trace_number(f, &number))
        return false;
    trace_keep_number(f, key, number);
    return true;
}

bool trace_file_parse(const char *text, trace_file *out)
{
    *out = (trace_file){.at = text, .lost = NAN};
    return trace_take(out, "{") && trace_members(out) && (trace_take(out, ""), *out->at == '\0');
}
