/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a piece of work, measured while other programs run. The same work is repeated, and each repeat is cut
 * into slices of about half a millisecond, at ticks of the work. So a disturbance affects only the slices that it hits,
 * in one repeat. There are two sums over the slices:
 *
 *     quiet time    the sum of the fastest time of each slice: the time if no other program disturbed the work at all.
 *                   It serves to compare.
 *     typical time  the sum of the median of each slice over the last repeats: the time without interruptions, but with
 *                   the caches and the memory that other programs leave. It serves to predict. */
#ifndef ITH_TUNE_QUIET_H
#define ITH_TUNE_QUIET_H

#include <stdbool.h>
#include <stdint.h>

#define ITH_QUIET_SLICES 2048 /* the most slices of a repeat; the last one takes all the remaining time */
#define ITH_QUIET_KEPT 15     /* repeats whose slices are kept for the medians */

typedef struct ith_quiet {
    bool cut;                       /* whether the first repeat, which cuts the slices, has ended */
    int64_t slices, slice;          /* slices of a repeat; the slice that is under way */
    int64_t ticks, tick;            /* ticks of the first repeat, and of the repeat under way */
    double begin;                   /* when the slice under way began */
    int64_t ends[ITH_QUIET_SLICES]; /* the tick with which a slice ends */
    double now[ITH_QUIET_SLICES];   /* the slices of the repeat under way, in seconds */
    double least[ITH_QUIET_SLICES]; /* the fastest time of each slice */
    int64_t repeats;                /* number of the repeats that count */
    double kept[ITH_QUIET_SLICES][ITH_QUIET_KEPT];
} ith_quiet;

/* Forgets all repeats. */
void ith_quiet_reset(ith_quiet *quiet);
/* ith_quiet_begin begins a repeat, ith_quiet_end ends it. The work calls ith_quiet_tick at the same moments in every
 * repeat. A repeat with another number of ticks than the first does not count. */
void ith_quiet_begin(ith_quiet *quiet);
void ith_quiet_tick(ith_quiet *quiet);
void ith_quiet_end(ith_quiet *quiet);
/* The sum of the fastest times of all slices; infinity before the first repeat has ended. */
double ith_quiet_seconds(const ith_quiet *quiet);
/* The sum of the medians of all slices; infinity before the first repeat has ended. */
double ith_quiet_typical(const ith_quiet *quiet);

#endif
