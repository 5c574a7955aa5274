/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats a computation and measures its stages. The computation marks its stages as intervals of the trace
 * (base/trace.h); the clock listens to them. After each repeat it measures the peaks of the instructions that the
 * stages use, so that a processor that becomes slower lowers both. */
#ifndef ITH_WAN_BENCH_CLOCK_H
#define ITH_WAN_BENCH_CLOCK_H

#include <ithaca/bench.h>

#include "../../base/observer.h"
#include "../../kernels/device_rate.h"
#include "../../kernels/peak.h"
#include "../part/precision.h"
#include "bench_slices.h"

#define ITH_BENCH_STAGES_MAX 16
#define ITH_BENCH_UNITS_MAX 4  /* kinds of instructions that the stages of one benchmark use */
#define ITH_BENCH_PROGRESS 100 /* a stage of progress besides the stages of ith_stage: repeats of a benchmark */
#define ITH_BENCH_NO_UNIT (-1) /* for a stage that multiplies nothing */

/* A stage: the intervals of the trace with its name. */
typedef struct ith_bench_clock_stage {
    const char *name;
    double operations; /* of one repeat */
    int unit;          /* the stage's instructions: an index into clock.units, or ITH_BENCH_NO_UNIT */
} ith_bench_clock_stage;

/* Instructions that stages multiply with: of a device, of an attention kernel, or of one product. */
typedef struct ith_bench_unit {
    ith_device_rate *device;          /* NULL: the processor */
    char kernel[ITH_ATTN_NAME_BYTES]; /* name of the attention kernel; "": `product` counts */
    ith_instructions product;
    double burst; /* the highest rate so far, in 10^9 operations a second */
} ith_bench_unit;

/* The clock of one benchmark. */
typedef struct ith_bench_clock {
    ith_context *context;
    const ith_bench_options *options;
    int threads, repeats;
    const char *whole; /* name of the intervals that contain the stages */
    ith_bench_clock_stage stages[ITH_BENCH_STAGES_MAX];
    int stage_count;
    ith_bench_unit units[ITH_BENCH_UNITS_MAX];
    int unit_count;
    ith_span span;   /* the part of the progress that the current repeat accounts for */
    double *seconds; /* [repeats][stage_count + 2]: of each stage, of the rest, and of the whole */
    double *peaks;   /* [repeats][unit_count], in 10^9 operations a second */
    ith_bench_slices slices;
    int repeat;                           /* the current repeat; -1 for the first, which warms up */
    double now[ITH_BENCH_STAGES_MAX + 1]; /* seconds of each stage and of the whole in the current repeat */
} ith_bench_clock;

/* Returns the index of some instructions in clock.units, and adds them if they are not in it yet. */
int ith_bench_clock_add_product(ith_bench_clock *clock, ith_instructions product);
int ith_bench_clock_add_kernel(ith_bench_clock *clock, const char *kernel);
int ith_bench_clock_add_device(ith_bench_clock *clock, ith_device_rate *rate);
/* Adds a stage. `unit`: an index that the functions above have returned, or ITH_BENCH_NO_UNIT. */
void ith_bench_clock_add(ith_bench_clock *clock, const char *name, double operations, int unit);

/* To be called whenever the computation asks its observer whether to stop (ith_observer.tick). */
void ith_bench_clock_tick(ith_bench_clock *clock);
/* A function that runs the computation once, and accounts for `span` of the progress. */
typedef ith_status (*ith_bench_run_fn)(void *user, const ith_span *span);
/* Runs the computation once to warm up and then clock.repeats times, and calls options.on_stage with the results of
 * each stage. */
ith_status ith_bench_clock_run(ith_bench_clock *clock, ith_bench_run_fn run, void *user);

#endif
