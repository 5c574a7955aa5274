/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts repeats of a piece of work into slices, and keeps the times of each (quiet.h). */
#include "quiet.h"

#include "../base/clock.h"
#include "../base/median.h"

#include <math.h>
#include <string.h>

static const double SLICE_SECONDS = 0.0005;

void ith_quiet_reset(ith_quiet *q)
{
    q->cut = false;
    q->slices = q->ticks = q->repeats = 0;
}

void ith_quiet_begin(ith_quiet *q)
{
    q->slice = q->tick = 0;
    q->begin = ith_clock_seconds();
}

/* Ends the slice under way. */
static void end_slice(ith_quiet *q)
{
    double time = ith_clock_seconds();
    q->now[q->slice++] = time - q->begin;
    q->begin = time;
}

/* In the first repeat every tick reads the clock, in later ones only the last tick of a slice does. */
void ith_quiet_tick(ith_quiet *q)
{
    q->tick++;
    if (q->slice == ITH_QUIET_SLICES - 1)
        return;
    if (!q->cut && ith_clock_seconds() - q->begin >= SLICE_SECONDS) {
        q->ends[q->slice] = q->tick;
        end_slice(q);
    } else if (q->cut && q->slice < q->slices - 1 && q->tick == q->ends[q->slice]) {
        end_slice(q);
    }
}

void ith_quiet_end(ith_quiet *q)
{
    end_slice(q);
    if (!q->cut)
        q->slices = q->slice, q->ticks = q->tick;
    q->cut = true;
    if (q->tick != q->ticks || q->slice != q->slices)
        return;
    for (int64_t i = 0; i < q->slices; i++) {
        q->least[i] = q->repeats ? fmin(q->least[i], q->now[i]) : q->now[i];
        q->kept[i][q->repeats % ITH_QUIET_KEPT] = q->now[i];
    }
    q->repeats++;
}

double ith_quiet_seconds(const ith_quiet *q)
{
    double sum = q->cut ? 0 : INFINITY;
    for (int64_t i = 0; i < q->slices; i++)
        sum += q->least[i];
    return sum;
}

double ith_quiet_typical(const ith_quiet *q)
{
    const int64_t count = q->repeats < ITH_QUIET_KEPT ? q->repeats : ITH_QUIET_KEPT;
    double sum = q->repeats ? 0 : INFINITY, numbers[ITH_QUIET_KEPT];
    for (int64_t i = 0; i < q->slices && count; i++) {
        memcpy(numbers, q->kept[i], (size_t)count * sizeof *numbers);
        sum += ith_median(numbers, count);
    }
    return sum;
}
