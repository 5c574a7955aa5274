/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts repeats of a piece of work into slices, and keeps the fastest time of each (quiet.h). */
#include "quiet.h"

#include "../base/clock.h"

#include <math.h>

static const double SLICE_SECONDS = 0.0005;

void ith_quiet_reset(ith_quiet *q)
{
    q->cut = false;
    q->slices = q->ticks = 0;
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
    if (q->tick == q->ticks && q->slice == q->slices)
        for (int64_t i = 0; i < q->slices; i++)
            q->least[i] = q->cut ? fmin(q->least[i], q->now[i]) : q->now[i];
    q->cut = true;
}

double ith_quiet_seconds(const ith_quiet *q)
{
    double sum = q->cut ? 0 : INFINITY;
    for (int64_t i = 0; i < q->slices; i++)
        sum += q->least[i];
    return sum;
}
