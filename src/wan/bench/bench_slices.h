/* SPDX-License-Identifier: Apache-2.0 */
/* The slices of a benchmark. Every repeat of a computation is the same sequence of stages. A stage is cut into slices
 * of about a millisecond, at moments when the computation asks whether to stop. The sum of each slice's fastest time in
 * any repeat is the time that the computation would take if no other program disturbed it.
 *
 * With several threads the moments differ between repeats, because threads take their work in no fixed order. Then a
 * stage is one slice. */
#ifndef ITH_WAN_BENCH_SLICES_H
#define ITH_WAN_BENCH_SLICES_H

#include "../../base/context.h"

/* One stage of the sequence. */
typedef struct ith_bench_interval {
    int stage;
    int64_t first, ticks; /* its first slice in `fastest`, and its ticks; it has at most ticks + 1 slices */
    double whole;         /* the fastest time of the whole stage */
    bool known;           /* whether its slices have been cut */
} ith_bench_interval;

/* The slices of all stages, and the place of the current repeat among them. */
typedef struct ith_bench_slices {
    bool cuts; /* whether stages are cut; false: a stage is one slice */
    /* The current repeat: number of stages, and of ticks within them; and ticks since the last stage ended. */
    int64_t interval, used, tick;
    /* The numbers of stages and of ticks in the first repeat: the sizes of the arrays below. 0 before its end. */
    int64_t intervals_most, ticks_most;
    ith_bench_interval *intervals; /* [intervals_most] */
    double *times;                 /* [ticks_most]: times of the ticks since the last stage ended */
    double *fastest;               /* [ticks_most + intervals_most]: fastest time of each slice */
    bool *cut;                     /* [ticks_most + intervals_most]: whether a slice ends at this tick */
} ith_bench_slices;

/* Begins a repeat. */
void ith_bench_slices_begin(ith_bench_slices *slices);
/* Notes that the computation asks whether to stop. */
void ith_bench_slices_tick(ith_bench_slices *slices);
/* Notes a stage that has lasted from `begin` to `end` (ith_clock_seconds). */
void ith_bench_slices_end(ith_bench_slices *slices, int stage, double begin, double end);
/* Takes memory, after the first repeat has counted. The memory does not count as held. */
ith_status ith_bench_slices_make_room(ith_context *context, ith_bench_slices *slices);
void ith_bench_slices_free(ith_context *context, ith_bench_slices *slices);
/* The sum of the fastest times of all slices of a stage. */
double ith_bench_slices_quiet(const ith_bench_slices *slices, int stage);

#endif
