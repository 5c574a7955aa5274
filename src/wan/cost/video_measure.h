/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of ith_video_measure: the rates of one layer of the transformer, and of the decoder. */
#ifndef ITH_WAN_VIDEO_MEASURE_H
#define ITH_WAN_VIDEO_MEASURE_H

#include "stage_clock.h"
#include "video_price.h"

/* A measurement under way. */
typedef struct ith_video_meter {
    ith_context *context;
    const ith_video_problem *problem;
    const ith_video_model *model;
    ith_video_place place;
    int sequence_ranks;
    double until; /* the time at which the part under way ends (ith_clock_seconds) */
    ith_machine_product rows[ITH_VIDEO_RATES];
    int64_t count;
} ith_video_meter;

/* Adds a row. seconds: without operations on rows of numbers. threads: that computed. */
void ith_video_meter_add(ith_video_meter *meter, ith_machine_work work, ith_dtype type, int64_t rows, int64_t features,
                         double operations, double seconds, int64_t threads);
/* What is left of `seconds` without the operations on rows (bytes): at least a fifth, should their rate be wrong. */
double ith_video_meter_without_rows(const ith_video_meter *meter, double seconds, double bytes, int64_t threads);

/* Measure until meter->until, but at least two repeats. */
ith_status ith_video_measure_layer(ith_video_meter *meter);
ith_status ith_video_measure_decoder(ith_video_meter *meter);

#endif
