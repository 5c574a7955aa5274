/* SPDX-License-Identifier: Apache-2.0 */
/* The time of the stages of a computation that is repeated: the median of each stage over the repeats. The stages are
 * intervals of the trace (base/trace.h). */
#ifndef ITH_WAN_STAGE_CLOCK_H
#define ITH_WAN_STAGE_CLOCK_H

#include "../../base/context.h"

#define ITH_STAGE_CLOCK_MOST 24
#define ITH_STAGE_CLOCK_ENDS 16
#define ITH_STAGE_CLOCK_REPEATS 20 /* the most repeats that count */

/* The stages of a computation, and their times in all repeats. */
typedef struct ith_stage_clock {
    bool alone; /* the computation has one thread */
    /* The last intervals: the time at which each ended, and the processor time then. The oldest one is at `oldest`. */
    double ends[ITH_STAGE_CLOCK_ENDS], worked[ITH_STAGE_CLOCK_ENDS];
    int oldest;
    int count;
    char names[ITH_STAGE_CLOCK_MOST][32];
    double now[ITH_STAGE_CLOCK_MOST];      /* seconds in the repeat under way */
    int64_t repeats[ITH_STAGE_CLOCK_MOST]; /* number of repeats that had the stage */
    double kept[ITH_STAGE_CLOCK_MOST][ITH_STAGE_CLOCK_REPEATS];
    struct ith_trace *before; /* the context's trace before the clock listened */
} ith_stage_clock;

/* Listens to the context from now on. No thread may be computing during this call and ith_stage_clock_close. */
ith_status ith_stage_clock_open(ith_stage_clock *clock, ith_context *context, bool alone);
void ith_stage_clock_close(ith_stage_clock *clock, ith_context *context);
/* The present time; the processor time if the computation has one thread. */
double ith_stage_clock_now(const ith_stage_clock *clock);
/* Begins a repeat: the times since the last one are dropped. */
void ith_stage_clock_begin(ith_stage_clock *clock);
/* Ends a repeat, and keeps its times. */
void ith_stage_clock_end(ith_stage_clock *clock);
/* Adds seconds to a stage in the repeat under way. */
void ith_stage_clock_add(ith_stage_clock *clock, const char *name, double seconds);
/* The median time of a stage; 0 if there was no such stage. */
double ith_stage_clock_seconds(const ith_stage_clock *clock, const char *name);

#endif
