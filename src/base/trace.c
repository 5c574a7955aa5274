/* SPDX-License-Identifier: Apache-2.0 */
/* Records time intervals and counters, and writes the trace file (Trace Event Format, as Chrome and Perfetto read it:
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
 *
 * Each rank is a process of the file. Its rows, which the format calls threads, show the computations of the rank and
 * the exchanges that are in flight. Intervals on one row may nest but not overlap, so overlapping intervals go to
 * further rows (lanes). */
#include "trace.h"

#include "clock.h"
#include "replace_file.h"
#include "size.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LANES 8 /* the most rows for overlapping time intervals; the last row takes all further ones */

typedef enum event_kind { EVENT_NONE = 0, EVENT_SPAN, EVENT_COUNTER } event_kind;

/* A recorded event: an interval of time (EVENT_SPAN), or a value of a counter. */
typedef struct event {
    const char *name, *category;
    double begin;  /* seconds, by ith_clock_seconds */
    double amount; /* the end of the interval in seconds, or the value of the counter */
    int rank;
    atomic_int kind; /* an event_kind, stored after all other members, with release order */
} event;

/* A trace, with room for `capacity` events. */
typedef struct ith_trace {
    int64_t capacity;
    ith_trace_listen_fn listen; /* gets every interval, which is then not recorded; NULL: intervals are recorded */
    void *listen_user;
    double begun; /* when recording began, by ith_clock_seconds */
    /* number of events so far, including events beyond the capacity, which are lost */
    atomic_int_fast64_t claimed;
    event events[];
} ith_trace;

/* ---- Recording ------------------------------------------------------------------------------------------------- */

double ith_trace_begin(const ith_context *context)
{
    return ith_context_trace(context) ? ith_clock_seconds() : -1;
}

static void record(ith_trace *trace, event_kind kind, const event *values)
{
    int64_t index = atomic_fetch_add_explicit(&trace->claimed, 1, memory_order_relaxed);
    if (index >= trace->capacity)
        return;
    event *slot = &trace->events[index];
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
    event span = {.name = name, .category = category, .begin = begin, .rank = ith_context_rank(context)};
    span.amount = ith_clock_seconds();
    if (trace->listen)
        trace->listen(trace->listen_user, name, begin, span.amount);
    else
        record(trace, EVENT_SPAN, &span);
}

void ith_trace_counter(const ith_context *context, const char *name, double value)
{
    ith_trace *trace = ith_context_trace(context);
    if (!trace || !isfinite(value))
        return;
    event counter = {.name = name, .amount = value, .rank = ith_context_rank(context)};
    counter.begin = ith_clock_seconds();
    record(trace, EVENT_COUNTER, &counter);
}

ith_status ith_trace_start(ith_context *context, int64_t events)
{
    if (!context)
        return ith_need(NULL, context, "context");
    int64_t bytes = 0;
    if (!ith_size_mul(events, sizeof(event), &bytes) || !ith_size_add(bytes, sizeof(ith_trace), &bytes))
        return ith_fail(context, ITH_ERR_ARGUMENT, "events is %lld: the room of a trace is 0 (no trace) or more events",
                        (long long)events);
    ith_trace *trace = NULL;
    if (events) {
        trace = ith_context_keep(context, bytes, "a trace");
        if (!trace)
            return ITH_ERR_MEMORY;
        trace->capacity = events;
        trace->begun = ith_clock_seconds();
    }
    ith_context_drop(context, ith_context_set_trace(context, trace));
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
    ith_context_drop(context, ith_context_set_trace(context, before));
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* The kinds of rows of a rank in the trace file: its computations, its exchanges, its counters. */
typedef enum row_kind { ROW_DOES, ROW_EXCHANGES, ROW_COUNTERS } row_kind;

static const char *const row_names[] = {"computing", "exchange"};

/* A recorded event and its position in the trace file. Overlapping intervals of one kind of row are drawn in several
 * rows, and `lane` is the number of the row among them. */
typedef struct mark {
    const event *event;
    row_kind row;
    int lane;
    int64_t begin, end; /* in nanoseconds since the trace began */
    /* index of the mark whose interval encloses this interval on the same row; negative: none */
    int64_t around;
    bool first_on_lane;
    bool first_of_rank;
} mark;

/* Orders events by rank, kind of row and begin. If two begin together, the longer one comes first, because it encloses
 * the other. */
static int compare_marks(const void *left, const void *right)
{
    const mark *a = left, *b = right;
    if (a->event->rank != b->event->rank)
        return a->event->rank < b->event->rank ? -1 : 1;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end == b->end ? 0 : a->end > b->end ? -1 : 1;
}

/* Fills marks with all recorded events and their positions, in the order of compare_marks, and returns their number. */
static int64_t collect_marks(const ith_trace *trace, mark *marks)
{
    int64_t count = 0, claimed = ith_min64(atomic_load(&trace->claimed), trace->capacity);
    for (int64_t i = 0; i < claimed; i++) {
        const event *e = &trace->events[i];
        int kind = atomic_load_explicit(&e->kind, memory_order_acquire);
        if (kind == EVENT_NONE)
            continue;
        mark m = {.event = e, .row = ROW_COUNTERS, .begin = llround((e->begin - trace->begun) * 1e9)};
        m.end = m.begin;
        if (kind == EVENT_SPAN) {
            m.row = strcmp(e->category, ITH_TRACE_EXCHANGE) ? ROW_DOES : ROW_EXCHANGES;
            m.end = llround((e->amount - trace->begun) * 1e9);
        }
        marks[count++] = m;
    }
    qsort(marks, (size_t)count, sizeof *marks, compare_marks);
    return count;
}

/* Returns the first row (lane) on which interval i overlaps no other interval unless one encloses the other; if there
 * is none, the last row. innermost[lane]: index of the latest interval on the row that has not ended; negative:
 * none. */
static int find_lane(mark *marks, int64_t i, int64_t *innermost)
{
    for (int lane = 0; lane < MOST_LANES; lane++) {
        while (innermost[lane] >= 0 && marks[innermost[lane]].end <= marks[i].begin)
            innermost[lane] = marks[innermost[lane]].around;
        if (innermost[lane] < 0 || marks[i].end <= marks[innermost[lane]].end)
            return lane;
    }
    return MOST_LANES - 1;
}

/* Chooses a row (lane) for each time interval, and finds the first event of each rank and of each row. The marks are in
 * the order of compare_marks. */
static void place_marks(mark *marks, int64_t count)
{
    int64_t innermost[MOST_LANES];
    bool used[MOST_LANES];
    for (int64_t i = 0; i < count; i++) {
        marks[i].first_of_rank = i == 0 || marks[i - 1].event->rank != marks[i].event->rank;
        if (marks[i].row == ROW_COUNTERS)
            continue;
        if (marks[i].first_of_rank || marks[i - 1].row != marks[i].row)
            for (int lane = 0; lane < MOST_LANES; lane++)
                innermost[lane] = -1, used[lane] = false;
        int lane = find_lane(marks, i, innermost);
        marks[i].lane = lane;
        marks[i].first_on_lane = !used[lane];
        marks[i].around = innermost[lane];
        innermost[lane] = i;
        used[lane] = true;
    }
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

/* The contents of a trace file: the events with their positions, and the number of events that were lost. */
typedef struct picture {
    const mark *marks;
    int64_t count, lost;
} picture;

/* Writes value / 1000 as a decimal number. It uses integers only, because printf's decimal point depends on the
 * locale. */
static void write_thousandths(FILE *file, int64_t value)
{
    fprintf(file, "%lld.%03lld", (long long)(value / 1000), (long long)(value % 1000));
}

static void write_value(FILE *file, double value)
{
    long long millionths = fabs(value) < 1e12 ? llround(fabs(value) * 1e6) : 0;
    if (fabs(value) < 1e12)
        fprintf(file, "%s%lld.%06lld", value < 0 ? "-" : "", millionths / 1000000, millionths % 1000000);
    else
        fprintf(file, "%.0f", value);
}

static void write_rank_name(FILE *file, int rank)
{
    fprintf(file, "\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}},", rank, rank);
    fprintf(file, "\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}},", rank,
            rank);
}

static void write_row_name(FILE *file, const mark *m, int row)
{
    int rank = m->event->rank;
    fprintf(file, "\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s", rank, row,
            row_names[m->row]);
    if (m->lane)
        fprintf(file, " %d", m->lane + 1);
    fprintf(file, "\"}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",", rank, row);
    fprintf(file, "\"args\":{\"sort_index\":%d}},", row);
}

static void write_counter(FILE *file, const mark *m)
{
    fprintf(file, "\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"%s\",\"ts\":", m->event->rank, m->event->name);
    write_thousandths(file, m->begin);
    fprintf(file, ",\"args\":{\"value\":");
    write_value(file, m->event->amount);
    fprintf(file, "}}");
}

static void write_span(FILE *file, const mark *m, int row)
{
    const event *e = m->event;
    fprintf(file, "\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"cat\":\"%s\",\"ts\":", e->rank, row, e->name,
            e->category);
    write_thousandths(file, m->begin);
    fprintf(file, ",\"dur\":");
    write_thousandths(file, m->end - m->begin);
    fprintf(file, "}");
}

static void write_mark(FILE *file, const mark *m)
{
    int row = (int)m->row * MOST_LANES + m->lane;
    if (m->first_of_rank)
        write_rank_name(file, m->event->rank);
    if (m->first_on_lane)
        write_row_name(file, m, row);
    if (m->row == ROW_COUNTERS)
        write_counter(file, m);
    else
        write_span(file, m, row);
}

static ith_status write_picture(FILE *file, void *user)
{
    const picture *p = user;
    fprintf(file, "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"library\":\"ithaca %s\",\"lost_events\":%lld},\n",
            ith_version(), (long long)p->lost);
    fprintf(file, "\"traceEvents\":[");
    for (int64_t i = 0; i < p->count; i++) {
        write_mark(file, &p->marks[i]);
        if (i + 1 < p->count)
            fprintf(file, ",");
    }
    fprintf(file, "\n]}\n");
    return ITH_OK;
}

ith_status ith_trace_save(ith_context *context, const char *path)
{
    if (!context)
        return ith_need(NULL, context, "context");
    if (!path)
        return ith_fail(context, ITH_ERR_ARGUMENT, "path is NULL: the trace needs the name of a file");
    const ith_trace *trace = ith_context_trace(context);
    if (!trace)
        return ith_fail(context, ITH_ERR_ARGUMENT, "nothing is traced: call ith_trace_start before what is to be seen");
    int64_t claimed = atomic_load(&trace->claimed);
    mark *marks = ith_alloc(context, ith_min64(claimed, trace->capacity), sizeof *marks, "the rows of a trace");
    if (!marks)
        return ITH_ERR_MEMORY;
    picture p = {.marks = marks, .lost = ith_max64(claimed - trace->capacity, 0)};
    p.count = collect_marks(trace, marks);
    place_marks(marks, p.count);
    ith_status status = ith_replace_file(context, path, write_picture, &p);
    ith_free(context, marks);
    if (!status && p.lost)
        ith_log(context, ITH_LOG_WARNING, "%s lacks the last %lld events: the trace has room for %lld", path,
                (long long)p.lost, (long long)trace->capacity);
    return status;
}
