/* SPDX-License-Identifier: Apache-2.0 */
/* The time of repeated stages (stage_clock.h). */
#include "stage_clock.h"

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

/* Adds an interval to its stage, which is appended if it is new (ith_trace_listen_fn). */
static void listen(void *user, const char *name, double begin, double end)
{
    ith_stage_clock *clock = user;
    int i = index_of(clock, name);
    if (i == ITH_STAGE_CLOCK_MOST)
        return;
    if (i == clock->count)
        snprintf(clock->names[clock->count++], sizeof clock->names[i], "%s", name);
    clock->now[i] += end - begin;
}

ith_status ith_stage_clock_open(ith_stage_clock *clock, ith_context *context)
{
    *clock = (ith_stage_clock){.count = 0};
    return ith_trace_listen(context, listen, clock, &clock->before);
}

void ith_stage_clock_close(ith_stage_clock *clock, ith_context *context)
{
    ith_trace_stop_listening(context, clock->before);
}

void ith_stage_clock_begin(ith_stage_clock *clock)
{
    memset(clock->now, 0, sizeof clock->now);
}

void ith_stage_clock_end(ith_stage_clock *clock)
{
    for (int i = 0; i < clock->count; i++)
        if (clock->now[i] > 0 && (clock->fastest[i] == 0 || clock->now[i] < clock->fastest[i]))
            clock->fastest[i] = clock->now[i];
}

double ith_stage_clock_seconds(const ith_stage_clock *clock, const char *name)
{
    int i = index_of(clock, name);
    return i < clock->count ? clock->fastest[i] : 0;
}
