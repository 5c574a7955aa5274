/* SPDX-License-Identifier: Apache-2.0 */
/* Options, contexts and peaks of the benchmarks. */
#ifndef ITH_BENCH_COMMON_H
#define ITH_BENCH_COMMON_H

#include "../src/kernels/peak.h"

/* An option of a program and the variable that its value is written to: exactly one of the pointers is set. */
typedef struct bench_option {
    const char *name; /* "--threads" */
    const char **text;
    ith_dtype *dtype;   /* F32, BF16 or F16 */
    ith_dtype *weights; /* F32, BF16, F16 or a quantised type (kernels/unpack.h) */
    int64_t *number;
    int *count;
} bench_option;

/* Reads pairs of an option and its value from the command line. Returns false if an option is unknown, or its value is
 * missing or malformed. */
bool bench_parse(int argc, char **argv, const bench_option *options, int count);

/* Creates a context, calls `bench` with it and returns the exit status of the program. Prints failures. */
int bench_run(const char *program, ith_status (*bench)(ith_context *context, const void *settings),
              const void *settings);

/* The peak of these instructions on one thread in the fastest of a few bursts, which take about 0.1 ms together. */
double bench_burst(const ith_instructions *instructions, uint32_t cpu);

#endif
