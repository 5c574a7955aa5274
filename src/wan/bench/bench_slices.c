/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts stages into slices, and keeps the fastest time of each slice. */
#include "bench_slices.h"

#include "../../base/clock.h"
#include "../../base/size.h"

#include <math.h>

static const double SLICE_SECONDS = 0.001;

void ith_bench_slices_begin(ith_bench_slices *s)
{
    s->interval = s->used = s->tick = 0;
}

void ith_bench_slices_tick(ith_bench_slices *s)
{
    if (s->cuts && s->tick < s->ticks_most)
        s->times[s->tick] = ith_clock_seconds();
    s->tick++;
}

/* Compares the slices of a stage, which took from `begin` to `end`, with the fastest so far. times: its ticks. In the
 * first measured repeat, a slice ends at the first tick after SLICE_SECONDS. */
static void compare_slices(ith_bench_slices *s, ith_bench_interval *interval, const double *times, double begin,
                           double end)
{
    double *fastest = s->fastest + interval->first;
    bool *cut = s->cut + interval->first;
    for (int64_t i = 0; i <= interval->ticks; i++) {
        double now = i < interval->ticks ? times[i] : end;
        if (!interval->known) {
            cut[i] = i == interval->ticks || now - begin >= SLICE_SECONDS;
            fastest[i] = INFINITY;
        }
        if (cut[i]) {
            fastest[i] = fmin(fastest[i], now - begin);
            begin = now;
        }
    }
    interval->known = true;
}

void ith_bench_slices_end(ith_bench_slices *s, int stage, double begin, double end)
{
    if (!s->intervals) { /* the first repeat counts */
        s->interval++, s->used += s->tick, s->tick = 0;
        return;
    }
    const int64_t held = ith_min64(s->tick, s->ticks_most);
    int64_t before = 0; /* ticks before the stage began */
    while (before < held && s->cuts && s->times[before] <= begin)
        before++;
    if (s->interval < s->intervals_most) {
        ith_bench_interval *interval = &s->intervals[s->interval++];
        int64_t ticks = s->cuts && s->tick <= s->ticks_most ? held - before : 0;
        if (!interval->known) {
            ticks = ith_min64(ticks, s->ticks_most - s->used);
            *interval = (ith_bench_interval){
                .stage = stage, .first = s->used + s->interval - 1, .ticks = ticks, .whole = end - begin};
            s->used += ticks;
        }
        interval->whole = fmin(interval->whole, end - begin);
        if (interval->ticks == ticks)
            compare_slices(s, interval, s->times + before, begin, end);
    }
    s->tick = 0;
}

ith_status ith_bench_slices_make_room(ith_context *context, ith_bench_slices *s)
{
    s->intervals_most = s->interval, s->ticks_most = s->used + s->tick;
    const int64_t slices = s->intervals_most + s->ticks_most;
    s->intervals = ith_context_keep(context, s->intervals_most * (int64_t)sizeof *s->intervals + 1, "slices of time");
    s->times = ith_context_keep(context, s->ticks_most * (int64_t)sizeof *s->times + 1, "slices of time");
    s->fastest = ith_context_keep(context, slices * (int64_t)sizeof *s->fastest + 1, "slices of time");
    s->cut = ith_context_keep(context, slices * (int64_t)sizeof *s->cut + 1, "slices of time");
    return s->intervals && s->times && s->fastest && s->cut ? ITH_OK : ITH_ERR_MEMORY;
}

void ith_bench_slices_free(ith_context *context, ith_bench_slices *s)
{
    ith_context_drop(context, s->intervals);
    ith_context_drop(context, s->times);
    ith_context_drop(context, s->fastest);
    ith_context_drop(context, s->cut);
    *s = (ith_bench_slices){0};
}

double ith_bench_slices_quiet(const ith_bench_slices *s, int stage)
{
    double sum = 0;
    for (int64_t i = 0; i < s->intervals_most; i++) {
        const ith_bench_interval *interval = &s->intervals[i];
        double quiet = interval->known ? 0 : INFINITY;
        if (interval->stage != stage)
            continue;
        for (int64_t j = interval->first; interval->known && j <= interval->first + interval->ticks; j++)
            quiet += s->cut[j] ? s->fastest[j] : 0;
        sum += fmin(quiet, interval->whole);
    }
    return sum;
}
