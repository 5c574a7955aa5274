/* SPDX-License-Identifier: Apache-2.0 */
/* Records time intervals and counters, and brings events of other processes into a trace. */
#include "trace.h"

#include "clock.h"
#include "size.h"
#include "trace_events.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Recording ------------------------------------------------------------------------------------------------- */

double ith_trace_begin(const ith_context *context)
{
    return ith_context_trace(context) ? ith_clock_seconds() : -1;
}

static void record(ith_trace *trace, ith_trace_kind kind, const ith_trace_event *values)
{
    int64_t index = atomic_fetch_add_explicit(&trace->claimed, 1, memory_order_relaxed);
    if (index >= trace->capacity)
        return;
    ith_trace_event *slot = &trace->events[index];
    slot->name = values->name;
    slot->category = values->category;
    slot->begin = values->begin;
    slot->amount = values->amount;
    slot->rank = values->rank;
    atomic_store_explicit(&slot->kind, (int)kind, memory_order_release);
}

void ith_trace_end(const ith_context *context, double begin, const char *name, const char *category)
{
    ith_trace *trace = ith_context_trace(context);
    if (!trace || begin < trace->begun)
        return;
    ith_trace_event span = {.name = name, .category = category, .begin = begin, .rank = ith_context_rank(context)};
    span.amount = ith_clock_seconds();
    if (trace->listen)
        trace->listen(trace->listen_user, name, begin, span.amount);
    else
        record(trace, ITH_TRACE_SPAN, &span);
}

void ith_trace_simulated(const ith_context *context, int rank, double begin, double end, const char *name,
                         const char *category)
{
    ith_trace *trace = ith_context_trace(context);
    if (!trace || trace->listen || !(end > begin))
        return;
    ith_trace_event span = {.name = name, .category = category, .rank = rank};
    span.begin = trace->begun + begin;
    span.amount = trace->begun + end;
    record(trace, ITH_TRACE_SPAN, &span);
}

void ith_trace_counter(const ith_context *context, const char *name, double value)
{
    ith_trace *trace = ith_context_trace(context);
    if (!trace || !isfinite(value))
        return;
    ith_trace_event counter = {.name = name, .amount = value, .rank = ith_context_rank(context)};
    counter.begin = ith_clock_seconds();
    record(trace, ITH_TRACE_COUNTER, &counter);
}

void ith_trace_drop(ith_context *context, struct ith_trace *trace)
{
    for (ith_trace_others *others = trace ? trace->others : NULL, *next; others; others = next) {
        next = others->next;
        ith_context_drop(context, others);
    }
    ith_context_drop(context, trace);
}

ith_status ith_trace_start(ith_context *context, int64_t events)
{
    if (!context)
        return ith_need(NULL, context, "context");
    int64_t bytes = 0;
    if (!ith_size_mul(events, sizeof(ith_trace_event), &bytes) || !ith_size_add(bytes, sizeof(ith_trace), &bytes))
        return ith_fail(context, ITH_ERR_ARGUMENT, "events is %lld, and must be from 0 (no trace) to %lld",
                        (long long)events, (long long)((INT64_MAX - sizeof(ith_trace)) / sizeof(ith_trace_event)));
    ith_trace *trace = NULL;
    if (events) {
        trace = ith_context_keep(context, bytes, "a trace");
        if (!trace)
            return ITH_ERR_MEMORY;
        trace->capacity = events;
        trace->begun = trace->zero = ith_clock_seconds();
    }
    ith_trace_drop(context, ith_context_set_trace(context, trace));
    return ITH_OK;
}

ith_status ith_trace_listen(ith_context *context, ith_trace_listen_fn listen, void *user, struct ith_trace **before)
{
    ith_trace *trace = ith_context_keep(context, sizeof *trace, "a listener to a trace");
    if (!trace)
        return ITH_ERR_MEMORY;
    trace->listen = listen, trace->listen_user = user;
    trace->begun = ith_clock_seconds();
    *before = ith_context_set_trace(context, trace);
    return ITH_OK;
}

void ith_trace_stop_listening(ith_context *context, struct ith_trace *before)
{
    ith_trace_drop(context, ith_context_set_trace(context, before));
}

/* ---- Several processes ----------------------------------------------------------------------------------------- */

double ith_trace_common(const ith_trace *trace, double seconds)
{
    const ith_trace_sample *first = &trace->samples[0], *last = &trace->samples[1];
    if (!trace->sample_count)
        return seconds;
    if (trace->sample_count == 1 || seconds <= first->at)
        return seconds + first->offset;
    if (seconds >= last->at)
        return seconds + last->offset;
    double share = (seconds - first->at) / (last->at - first->at);
    return seconds + first->offset + share * (last->offset - first->offset);
}

double ith_trace_begun(const ith_context *context)
{
    const ith_trace *trace = ith_context_trace(context);
    return trace ? ith_trace_common(trace, trace->begun) : INFINITY;
}

void ith_trace_set_zero(ith_context *context, double zero)
{
    ith_trace *trace = ith_context_trace(context);
    if (trace)
        trace->zero = zero;
}

void ith_trace_set_host(ith_context *context, const char *host)
{
    ith_trace *trace = ith_context_trace(context);
    if (!trace)
        return;
    snprintf(trace->origin.host, sizeof trace->origin.host, "%s", host);
    for (char *at = trace->origin.host; *at; at++)
        if ((unsigned char)*at <= 0x20 || (unsigned char)*at >= 0x7f || *at == '"' || *at == '\\')
            *at = '?';
}

void ith_trace_set_clock(ith_context *context, const ith_trace_sample *sample)
{
    ith_trace *trace = ith_context_trace(context);
    if (!trace)
        return;
    int index = trace->sample_count ? 1 : 0; /* a third sample replaces the second one */
    trace->samples[index] = *sample;
    trace->sample_count = index + 1;
    trace->origin.clock_error = index ? fmax(trace->samples[0].error, sample->error) : sample->error;
}

/* A package begins with a head. The events follow, and then the text of their names. */
typedef struct package_head {
    int64_t count, lost, text_bytes;
    ith_trace_origin origin;
} package_head;

/* An event of a package. */
typedef struct packed_event {
    double begin, amount;   /* as in ith_trace_event, by the common clock */
    int32_t name, category; /* positions in the text */
    int32_t rank, kind;
} packed_event;

/* The most different names and categories of a package; further ones are lost. All are literals of the library. */
#define MOST_NAMES 512

/* The different names of a package: literals, which are compared by their addresses. */
typedef struct name_list {
    const char *names[MOST_NAMES];
    int32_t at[MOST_NAMES]; /* their positions in the text */
    int count;
    int32_t bytes;
} name_list;

/* Adds a name to the list unless it is there, and returns its position in the text. The first name is "". */
static int32_t add_name(name_list *list, const char *name)
{
    for (int i = list->count - 1; i > 0; i--)
        if (list->names[i] == name)
            return list->at[i];
    if (!name || list->count == MOST_NAMES)
        return 0;
    list->names[list->count] = name;
    list->at[list->count] = list->bytes;
    list->bytes += (int32_t)strlen(name) + 1;
    return list->at[list->count++];
}

/* Packs the first `recorded` events, adds their names to the list, and returns their number. Other ranks may record
 * further ones meanwhile. */
static int64_t pack_events(const ith_trace *trace, int64_t recorded, packed_event *out, name_list *names)
{
    int64_t count = 0;
    for (int64_t i = 0; i < recorded; i++) {
        const ith_trace_event *e = &trace->events[i];
        int kind = atomic_load_explicit(&e->kind, memory_order_acquire);
        if (kind == ITH_TRACE_NONE)
            continue;
        packed_event *p = &out[count++];
        *p = (packed_event){.begin = ith_trace_common(trace, e->begin), .amount = e->amount};
        if (kind == ITH_TRACE_SPAN)
            p->amount = ith_trace_common(trace, e->amount);
        p->name = add_name(names, e->name), p->category = add_name(names, e->category);
        p->rank = e->rank, p->kind = kind;
    }
    return count;
}

ith_status ith_trace_pack(ith_context *context, void **out, int64_t *bytes)
{
    const ith_trace *trace = ith_context_trace(context);
    const int64_t claimed = atomic_load(&trace->claimed), room = ith_min64(claimed, trace->capacity);
    name_list names = {.names = {""}, .count = 1, .bytes = 1};
    *bytes = 0;
    char *package = ith_alloc(context, room * (int64_t)sizeof(packed_event) + (int64_t)sizeof(package_head), 1,
                              "the events of a trace");
    *out = package;
    if (!package)
        return ITH_ERR_MEMORY;
    package_head head = {.lost = claimed - room, .origin = trace->origin};
    head.count = pack_events(trace, room, (packed_event *)(void *)(package + sizeof head), &names);
    head.text_bytes = names.bytes;
    memcpy(package, &head, sizeof head);
    int64_t before = (int64_t)sizeof head + head.count * (int64_t)sizeof(packed_event);
    char *whole = ith_alloc(context, before + names.bytes, 1, "the events of a trace");
    if (whole) {
        memcpy(whole, package, (size_t)before);
        for (int i = 0; i < names.count; i++)
            memcpy(whole + before + names.at[i], names.names[i], strlen(names.names[i]) + 1);
        *bytes = before + names.bytes;
    }
    ith_free(context, package);
    *out = whole;
    return whole ? ITH_OK : ITH_ERR_MEMORY;
}

ith_status ith_trace_add(ith_context *context, const void *package, int64_t bytes)
{
    ith_trace *trace = ith_context_trace(context);
    package_head head = {0};
    int64_t events = 0, kept = 0;
    if (bytes >= (int64_t)sizeof head)
        memcpy(&head, package, sizeof head);
    const char *packed = (const char *)package + sizeof head;
    bool fits = ith_size_mul(head.count, sizeof(packed_event), &events) && head.text_bytes > 0 &&
                ith_size_add(events, head.text_bytes, &kept) && kept == bytes - (int64_t)sizeof head;
    if (!fits || packed[kept - 1])
        return ith_fail(context, ITH_ERR_FORMAT, "the trace of another process is damaged");
    ith_trace_others *others = ith_context_keep(
        context, (int64_t)sizeof *others + head.count * (int64_t)sizeof *others->events + head.text_bytes,
        "the trace of another process");
    if (!others)
        return ITH_ERR_MEMORY;
    char *text = (char *)(others->events + head.count);
    memcpy(text, packed + events, (size_t)head.text_bytes);
    others->origin = head.origin, others->count = head.count, others->lost = head.lost;
    for (int64_t i = 0; i < head.count; i++) {
        packed_event e;
        memcpy(&e, packed + i * (int64_t)sizeof e, sizeof e);
        bool named = e.name >= 0 && e.name < head.text_bytes && e.category >= 0 && e.category < head.text_bytes;
        ith_trace_event *to = &others->events[i];
        to->name = named ? text + e.name : "", to->category = named ? text + e.category : "";
        to->begin = e.begin, to->amount = e.amount, to->rank = e.rank;
        atomic_init(&to->kind, e.kind);
    }
    others->next = trace->others;
    trace->others = others;
    return ITH_OK;
}
