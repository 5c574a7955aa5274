/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of ith_video_measure: the rates of one layer of the transformer, and of the decoder.
 *
 * A time is measured twice: with one thread, and with all threads of a rank or a process, which also wait for one
 * another. The second time counts, unless it is more than 1.5 times the first: then other programs have kept some of
 * the threads from running. */
#ifndef ITH_WAN_VIDEO_MEASURE_H
#define ITH_WAN_VIDEO_MEASURE_H

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

/* Adds a row. unit_seconds: the time of one unit at full speed for `operations`, without operations on rows. */
void ith_video_meter_add(ith_video_meter *meter, ith_machine_work work, ith_dtype type, int64_t rows, int64_t features,
                         double operations, double unit_seconds);
/* Takes the price of operations on rows, which move `bytes` bytes, off the `seconds` that `threads` threads take.
 * Returns the time of one unit at full speed: at least a fifth of the whole, in case the rate of rows is wrong. */
double ith_video_meter_without_rows(const ith_video_meter *meter, double seconds, double bytes, int64_t threads);
/* Chooses between two times of one unit: measured with one thread, and with several. */
double ith_video_meter_choose(double alone, double together);

/* Measure until meter->until, but at least two repeats. */
ith_status ith_video_measure_layer(ith_video_meter *meter);
ith_status ith_video_measure_decoder(ith_video_meter *meter);

#endif
