/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of ith_video_measure: the rates of one layer of the transformer, and of the decoder.
 *
 * A rate is measured twice: with one thread, and with all threads of a rank or a process, which also wait for one
 * another. The second one counts, unless it takes half as long again: then other programs have kept the threads from
 * meeting. */
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
/* The time of one unit at full speed without operations on rows (bytes), if `threads` threads take `seconds` with them:
 * at least a fifth, should the rate of rows be wrong. */
double ith_video_meter_without_rows(const ith_video_meter *meter, double seconds, double bytes, int64_t threads);
/* Of the times of one unit with one thread and with several, the one that counts. */
double ith_video_meter_choose(double alone, double together);

/* Measure until meter->until, but at least two repeats. */
ith_status ith_video_measure_layer(ith_video_meter *meter);
ith_status ith_video_measure_decoder(ith_video_meter *meter);

#endif
