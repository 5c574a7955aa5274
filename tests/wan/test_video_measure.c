/* SPDX-License-Identifier: Apache-2.0 */
/* The measured rates of a video's linear layers and convolutions. */
#include <ithaca/video_cost.h>

#include "base/clock.h"

#include "support/engine/pipeline_fixture.h"
#include "support/engine/video_scene.h"

static void rates_are_measured(void **state)
{
    (void)state;
    video_scene s;
    ith_machine_product rows[ITH_VIDEO_RATES] = {ITH_MACHINE_PRODUCT_INIT};
    ith_machine_attention row = ITH_MACHINE_ATTENTION_INIT;
    ith_generate_options o = video_scene_run();
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    int64_t count = 0, linear = 0, convolutions = 0;
    ith_video_measure_options measuring = ITH_VIDEO_MEASURE_OPTIONS_INIT;
    measuring.seconds = 0.02;
    video_scene_set(&s, true);
    s.machine.host_units = 2, s.machine.row_bytes_per_second = 5e9;
    check(context, ith_video_problem_read(pipeline, &o, &p));
    check(context, ith_video_measure(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 2, &measuring, rows, &count, &row));
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].struct_size, sizeof *rows);
        assert_true(rows[i].gflops > 0 && rows[i].rows > 0 && rows[i].features > 0);
        linear += rows[i].work == ITH_WORK_LINEAR;
        convolutions += rows[i].work == ITH_WORK_CONVOLUTION;
    }
    assert_true(linear > 0 && convolutions > 3);
    assert_int_equal(row.head_dim, p.head_dim);
    assert_true(row.gflops > 0 && row.block_q > 0 && *row.kernel);
    s.machine.products = rows, s.machine.product_count = count;
    s.machine.attention = &row, s.machine.attention_count = 1;
    ith_video_cost cost = ITH_VIDEO_COST_INIT;
    check(context, ith_video_predict(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 2, NULL, NULL, &cost));
    assert_true(cost.linear_seconds > 0 && cost.decode_seconds > 0);
}

static bool stop_after(void *user)
{
    int *asked = user;
    return --*asked < 0;
}

/* A measurement of 30 seconds ends soon after should_stop returned true, and the next one is complete. */
static void a_measurement_is_stopped(void **state)
{
    (void)state;
    video_scene s;
    ith_machine_product rows[ITH_VIDEO_RATES] = {ITH_MACHINE_PRODUCT_INIT};
    ith_video_measure_options measuring = ITH_VIDEO_MEASURE_OPTIONS_INIT;
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    int64_t count = 0;
    video_scene_set(&s, true);
    s.machine.host_units = 2;
    check(context, ith_video_problem_named(context, "wan2.1-14b-480p", &p));
    for (int asks = 0; asks < 12; asks += 5) {
        int asked = asks;
        measuring.seconds = 30, measuring.should_stop = stop_after, measuring.user = &asked, count = 7;
        const double begin = ith_clock_seconds();
        assert_int_equal(
            ith_video_measure(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, &measuring, rows, &count, NULL),
            ITH_ERR_INTERRUPTED);
        assert_true(ith_clock_seconds() - begin < 10);
        assert_int_equal(count, 0);
    }
    ith_generate_options o = video_scene_run();
    check(context, ith_video_problem_read(pipeline, &o, &p));
    measuring.seconds = 0.02, measuring.should_stop = NULL;
    check(context, ith_video_measure(context, &p, NULL, ITH_CFG_BATCH, &s.machine, 1, &measuring, rows, &count, NULL));
    assert_true(count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_measured),
        cmocka_unit_test(a_measurement_is_stopped),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
