/* SPDX-License-Identifier: Apache-2.0 */
/* The problem that a checkpoint and the options of a run make, of which the time is predicted. */
#include <ithaca/video_cost.h>

#include "support/engine/pipeline_fixture.h"
#include "support/engine/video_scene.h"
#include "support/in_range.h"
#include "support/refused.h"

#include <math.h>

static void a_checkpoint_is_a_problem(void **state)
{
    (void)state;
    ith_generate_options o = video_scene_run();
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    int32_t ids[512];
    int64_t count = 0, high = 0;
    check(context, ith_video_problem_read(pipeline, &o, &p));
    check(context, ith_pipeline_tokenize(pipeline, o.prompt, ids, &count));
    assert_int_equal(p.prompt_rows, count);
    check(context, ith_pipeline_tokenize(pipeline, o.negative, ids, &count));
    assert_int_equal(p.negative_rows, count);
    assert_int_equal(p.steps, 7);
    assert_int_equal(p.guided_steps, 7);
    o.guidance[0] = 1.5, o.guidance[1] = 1; /* the low-noise expert computes no negative branch */
    check(context, ith_video_problem_read(pipeline, &o, &p));
    high = p.guided_steps;
    assert_true(in_range(high, 1, 6));
    o.guidance[0] = 1, o.guidance[1] = 4;
    check(context, ith_video_problem_read(pipeline, &o, &p));
    assert_int_equal(p.guided_steps, 7 - high);
    o.guidance[1] = 1;
    check(context, ith_video_problem_read(pipeline, &o, &p));
    assert_int_equal(p.guided_steps, 0);
    assert_int_equal(p.negative_rows, 0);
    o.prompt = NULL;
    REFUSED(context, "prompt", ith_video_problem_read(pipeline, &o, &p));
}

/* Only the first of the two numbers counts for a model with one expert. */
static void one_expert_has_one_guidance(void **state)
{
    (void)state;
    ith_generate_options o = video_scene_run();
    ith_video_problem p = ITH_VIDEO_PROBLEM_INIT;
    ith_pipeline *one = NULL;
    check(context, ith_pipeline_open(context, "golden/ti2v/model", &one));
    for (int guided = 0; guided < 2; guided++) {
        o.boundary = NAN, o.guidance[guided] = 1, o.guidance[!guided] = 4;
        check(context, ith_video_problem_read(one, &o, &p));
        assert_int_equal(p.guided_steps, guided ? 7 : 0);
        assert_true(guided ? p.negative_rows > 0 : p.negative_rows == 0);
    }
    ith_pipeline_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_a_problem),
        cmocka_unit_test(one_expert_has_one_guidance),
    };
    return cmocka_run_group_tests_name("video problem", tests, pipeline_set_up, pipeline_tear_down);
}
