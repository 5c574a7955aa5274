/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the trace file (Trace Event Format, as Chrome and Perfetto read it:
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
 *
 * Each rank is a process of the file. Its rows, which the format calls threads, show the computations of the rank, its
 * waits, and the exchanges that are in flight. Intervals on one row may nest but not overlap, so overlapping intervals
 * go to further rows (lanes). */
#include "replace_file.h"
#include "size.h"
#include "trace_events.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LANES 8 /* the most rows for overlapping time intervals; the last row takes all further ones */

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* The kinds of rows of a rank in the trace file: its computations, its waits, its exchanges, its counters. */
typedef enum row_kind { ROW_COMPUTES, ROW_WAITS, ROW_EXCHANGES, ROW_COUNTERS } row_kind;

static const char *const row_names[] = {"computing", "waiting", "exchange"};

/* A recorded event and its position in the trace file. Overlapping intervals of one kind of row are drawn in several
 * rows, and `lane` is the number of the row among them. */
typedef struct mark {
    const ith_trace_event *event;
    const ith_trace_origin *origin;
    row_kind row;
    int lane;
    int64_t begin, end; /* in nanoseconds since the beginning of the file's time */
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

static row_kind row_of(const char *category)
{
    if (!strcmp(category, ITH_TRACE_EXCHANGE))
        return ROW_EXCHANGES;
    return strcmp(category, ITH_TRACE_WAIT) ? ROW_COMPUTES : ROW_WAITS;
}

/* A common time in nanoseconds from the beginning of the file's time. */
static int64_t nanoseconds(const ith_trace *trace, double common)
{
    return ith_max64(llround((common - trace->zero) * 1e9), 0);
}

/* Makes marks of some events, and returns their number. own: their times are by the clock of this process, otherwise by
 * the common clock. */
static int64_t mark_events(const ith_trace *trace, bool own, const ith_trace_event *events, int64_t count,
                           const ith_trace_origin *origin, mark *marks)
{
    int64_t made = 0;
    for (int64_t i = 0; i < count; i++) {
        const ith_trace_event *e = &events[i];
        int kind = atomic_load_explicit(&e->kind, memory_order_acquire);
        if (kind == ITH_TRACE_NONE)
            continue;
        mark m = {.event = e, .origin = origin, .row = ROW_COUNTERS};
        m.begin = m.end = nanoseconds(trace, own ? ith_trace_common(trace, e->begin) : e->begin);
        if (kind == ITH_TRACE_SPAN) {
            m.row = row_of(e->category);
            m.end = nanoseconds(trace, own ? ith_trace_common(trace, e->amount) : e->amount);
        }
        marks[made++] = m;
    }
    return made;
}

/* Fills marks with the first `recorded` events of this process and all events of others, and with their positions, in
 * the order of compare_marks. Returns their number. */
static int64_t collect_marks(const ith_trace *trace, int64_t recorded, mark *marks)
{
    int64_t count = mark_events(trace, true, trace->events, recorded, &trace->origin, marks);
    for (const ith_trace_others *o = trace->others; o; o = o->next)
        count += mark_events(trace, false, o->events, o->count, &o->origin, marks + count);
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

/* Names a rank, and says how far the clock of its process may be from the common clock. */
static void write_rank_name(FILE *file, const mark *m)
{
    int rank = m->event->rank;
    fprintf(file, "\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d", rank, rank);
    if (m->origin->host[0])
        fprintf(file, " (%s)", m->origin->host);
    fprintf(file, "\"}},");
    if (m->origin->clock_error > 0) {
        fprintf(file, "\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_labels\",\"args\":{\"labels\":\"clock within ",
                rank);
        write_thousandths(file, llround(m->origin->clock_error * 1e9));
        fprintf(file, " us\"}},");
    }
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
    const ith_trace_event *e = m->event;
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
        write_rank_name(file, m);
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
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "nothing is traced: call ith_trace_start before the work to be traced");
    const int64_t claimed = atomic_load(&trace->claimed), recorded = ith_min64(claimed, trace->capacity);
    int64_t events = recorded;
    picture p = {.lost = claimed - recorded};
    for (const ith_trace_others *o = trace->others; o; o = o->next)
        events += o->count, p.lost += o->lost;
    mark *marks = ith_alloc(context, events, sizeof *marks, "the rows of a trace");
    if (!marks)
        return ITH_ERR_MEMORY;
    p.marks = marks;
    p.count = collect_marks(trace, recorded, marks);
    place_marks(marks, p.count);
    ith_status status = ith_replace_file(context, path, write_picture, &p);
    ith_free(context, marks);
    if (!status && p.lost)
        ith_log(context, ITH_LOG_WARNING, "%s lacks the last %lld events: the trace has room for %lld", path,
                (long long)p.lost, (long long)trace->capacity);
    return status;
}
