/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of ith_video_measure: the rates of one layer of the transformer, and of the decoder.
 *
 * Times are measured with all threads of a rank or a process, which also wait for one another. If other programs have
 * taken the processor from them, they are measured with one thread too, and the first time counts unless it is more
 * than 1.5 times the second. */
#ifndef ITH_WAN_VIDEO_METER_H
#define ITH_WAN_VIDEO_METER_H

#include "stage_clock.h"
#include "video_price.h"

/* A measurement under way. */
typedef struct ith_video_meter {
    ith_context *context;
    const ith_video_problem *problem;
    const ith_video_model *model;
    const ith_attn_options *options; /* kernel, softmax and tiles of self-attention */
    ith_video_place place;
    int sequence_ranks;
    double until; /* the time at which the part under way ends (ith_clock_seconds) */
    ith_machine_product rows[ITH_VIDEO_RATES];
    int64_t count;
    ith_machine_attention attention;
} ith_video_meter;

/* Adds a row, whose gflops are not known yet. unit_seconds: the time of one unit at full speed for `operations`,
 * without operations on rows and without calls. */
void ith_video_meter_add(ith_video_meter *meter, const ith_machine_product *row, double operations,
                         double unit_seconds);
/* Subtracts the price of operations on rows, which move `bytes` bytes, from `seconds`, the time of `threads` threads.
 * Returns the time of one unit at full speed: at least a fifth of the whole, in case the rate of rows is wrong. */
double ith_video_meter_without_rows(const ith_video_meter *meter, double seconds, double bytes, int64_t threads);
/* Chooses between two times of one unit: measured with one thread, and with several, which were `disturbed` or not. */
double ith_video_meter_choose(double alone, double together, bool disturbed);
/* A moment, and how often other programs had taken the processor from threads of this process by then. */
typedef struct ith_video_moment {
    double time; /* ith_clock_seconds */
    int64_t interruptions;
} ith_video_moment;
/* The present moment. */
ith_video_moment ith_video_moment_now(void);
/* Whether other programs have disturbed this process since a moment, because the machine had other work. */
bool ith_video_meter_disturbed(const ith_video_moment *since);

/* Measure until meter->until, but at least two repeats, and add rows to the meter. */
ith_status ith_video_measure_layer(ith_video_meter *meter);
ith_status ith_video_measure_decoder(ith_video_meter *meter);

#endif
