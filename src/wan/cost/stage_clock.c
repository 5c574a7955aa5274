/* SPDX-License-Identifier: Apache-2.0 */
/* The time of repeated stages (stage_clock.h). */
#include "stage_clock.h"

#include "../../base/clock.h"
#include "../../base/median.h"
#include "../../base/size.h"
#include "../../base/trace.h"

#include <stdio.h>
#include <string.h>

static int index_of(const ith_stage_clock *clock, const char *name)
{
    int i = 0;
    while (i < clock->count && strcmp(clock->names[i], name))
        i++;
    return i;
}

/* The processor time of an interval that ends now. Stages follow one another, so the interval begins where the last
 * interval before `begin` ended. */
static double worked_since(ith_stage_clock *clock, double begin, double end)
{
    const double now = ith_clock_thread_seconds();
    double from = -1, latest = 0;
    for (int i = 0; i < ITH_STAGE_CLOCK_ENDS; i++)
        if (clock->ends[i] > latest && clock->ends[i] <= begin)
            latest = clock->ends[i], from = clock->worked[i];
    clock->ends[clock->oldest] = end, clock->worked[clock->oldest] = now;
    clock->oldest = (clock->oldest + 1) % ITH_STAGE_CLOCK_ENDS;
    return from < 0 || now - from > end - begin ? end - begin : now - from;
}

void ith_stage_clock_add(ith_stage_clock *clock, const char *name, double seconds)
{
    int i = index_of(clock, name);
    if (i == ITH_STAGE_CLOCK_MOST)
        return;
    if (i == clock->count)
        snprintf(clock->names[clock->count++], sizeof clock->names[i], "%s", name);
    clock->now[i] += seconds;
}

/* Adds an interval to its stage, which is appended if it is new (ith_trace_listen_fn). */
static void listen(void *user, const char *name, double begin, double end)
{
    ith_stage_clock *clock = user;
    ith_stage_clock_add(clock, name, clock->alone ? worked_since(clock, begin, end) : end - begin);
}

double ith_stage_clock_now(const ith_stage_clock *clock)
{
    return clock->alone ? ith_clock_thread_seconds() : ith_clock_seconds();
}

ith_status ith_stage_clock_open(ith_stage_clock *clock, ith_context *context, bool alone)
{
    *clock = (ith_stage_clock){.alone = alone};
    return ith_trace_listen(context, listen, clock, &clock->before);
}

void ith_stage_clock_close(ith_stage_clock *clock, ith_context *context)
{
    ith_trace_stop_listening(context, clock->before);
}

void ith_stage_clock_begin(ith_stage_clock *clock)
{
    memset(clock->now, 0, sizeof clock->now);
    clock->ends[clock->oldest] = ith_clock_seconds(), clock->worked[clock->oldest] = ith_clock_thread_seconds();
}

void ith_stage_clock_end(ith_stage_clock *clock)
{
    for (int i = 0; i < clock->count; i++)
        if (clock->now[i] > 0)
            clock->kept[i][clock->repeats[i]++ % ITH_STAGE_CLOCK_REPEATS] = clock->now[i];
}

double ith_stage_clock_seconds(const ith_stage_clock *clock, const char *name)
{
    const int i = index_of(clock, name);
    if (i == clock->count || clock->repeats[i] == 0)
        return 0;
    const int64_t count = ith_min64(clock->repeats[i], ITH_STAGE_CLOCK_REPEATS);
    double times[ITH_STAGE_CLOCK_REPEATS];
    memcpy(times, clock->kept[i], sizeof times);
    return ith_median(times, count);
}
