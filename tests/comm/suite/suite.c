/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tests, and their helpers: clocks, a hash, and complaints on standard error. */
#include "suite.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

ith_status suite_complain(const char *file, int line, const char *condition, ith_context *context)
{
    fprintf(stderr, "%s:%d: %s (%s)\n", file, line, condition, ith_context_error(context));
    return ITH_ERR_INTERNAL;
}

int suite_least(int a, int b)
{
    return a < b ? a : b;
}

void suite_nap(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

double suite_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

uint32_t suite_mix(uint32_t a, uint32_t b)
{
    uint32_t h = (a + 0x9e3779b9u) * 0x85ebca6bu ^ (b + 0x7f4a7c15u) * 0xc2b2ae35u;
    h ^= h >> 15;
    return h * 0x2c1b3c6du ^ (h >> 13);
}

ith_transfer suite_whole(int peer, void *data, int64_t bytes)
{
    return (ith_transfer){peer, {.data = data, .count = {1, 1}, .bytes = bytes}};
}

int suite_run(const suite_subject *subject, const char *only)
{
    const suite_test *const parts[] = {suite_operations, suite_failures, suite_plans};
    int failed = 0;
    for (int part = 0; part < 3; part++)
        for (const suite_test *test = parts[part]; test->name; test++) {
            if (only && !strstr(test->name, only))
                continue;
            int failures = test->run(subject);
            if (failures)
                fprintf(stderr, "transport %s: %s: %d failures\n", subject->name, test->name, failures);
            failed += failures > 0;
        }
    return failed;
}
