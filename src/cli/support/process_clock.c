/* SPDX-License-Identifier: Apache-2.0 */
/* The time, and the memory of this process (cli.h). */
#include "../cli.h"

#include <sys/resource.h>
#include <time.h>

double ith_cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int64_t ith_cli_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (int64_t)usage.ru_maxrss * 1024;
}
