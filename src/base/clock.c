/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the clocks of the system (clock.h). */
#include "clock.h"

#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double ith_clock_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double ith_clock_thread_seconds(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}
