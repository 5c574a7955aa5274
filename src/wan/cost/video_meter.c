/* SPDX-License-Identifier: Apache-2.0 */
/* Turns measured times into rates (video_meter.h). */
#include "video_meter.h"

#include "../../base/clock.h"

#include <math.h>
#include <sys/resource.h>

#define MOST_INTERRUPTIONS 50 /* the most interruptions in a second on a machine without other work */

void ith_video_meter_add(ith_video_meter *m, const ith_machine_product *row, double operations, double unit_seconds)
{
    for (int64_t i = 0; i < m->count; i++) /* if several stages have one size, the first counts */
        if (m->rows[i].work == row->work && m->rows[i].dtype == row->dtype && m->rows[i].rows == row->rows &&
            m->rows[i].features == row->features)
            return;
    if (m->count == ITH_VIDEO_RATES || !(unit_seconds > 0) || !(operations > 0))
        return;
    m->rows[m->count] = *row;
    m->rows[m->count].struct_size = sizeof *row;
    m->rows[m->count++].gflops = 1e-9 * operations / unit_seconds;
}

double ith_video_meter_without_rows(const ith_video_meter *m, double seconds, double bytes, int64_t threads)
{
    const ith_machine *machine = &m->place.view.machine;
    const double all = seconds * ith_video_units(machine, threads);
    return machine->row_bytes_per_second > 0 ? fmax(all - bytes / machine->row_bytes_per_second, all / 5) : all;
}

double ith_video_meter_choose(double alone, double together, bool disturbed)
{
    return disturbed && together > 1.5 * alone ? alone : together;
}

ith_video_moment ith_video_moment_now(void)
{
    struct rusage use;
    return (ith_video_moment){ith_clock_seconds(), getrusage(RUSAGE_SELF, &use) ? 0 : (int64_t)use.ru_nivcsw};
}

bool ith_video_meter_disturbed(const ith_video_moment *since)
{
    const ith_video_moment now = ith_video_moment_now();
    return (double)(now.interruptions - since->interruptions) > MOST_INTERRUPTIONS * (now.time - since->time + 0.02);
}
