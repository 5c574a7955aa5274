/* SPDX-License-Identifier: Apache-2.0 */
/* Saved runs of models that make videos from images: from a first image, from a first and a last image, and with TI2V.
 * They give the bits of a run in one piece, also on another number of ranks. Other images than the run's are
 * refused. */
#include "support/engine/engine_ranks.h"
#include "support/engine/stopped_run.h"
#include "support/engine/tiny_model.h"
#include "support/engine/video_scene.h"
#include "support/folder_fixture.h"

#include <ithaca/video_cost.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STEPS 4
#define HEIGHT 48
#define WIDTH 32

static uint8_t pixels[2][HEIGHT * WIDTH * 3];
static const ith_image first = {sizeof first, pixels[0], HEIGHT, WIDTH};
static const ith_image last = {sizeof last, pixels[1], HEIGHT, WIDTH};

/* A model and the images that it takes. */
typedef struct scene {
    tiny_kind kind;
    const ith_image *first, *last;
} scene;

static const scene scenes[] = {
    {TINY_IMAGE, &first, NULL}, {TINY_IMAGE, &first, &last}, {TINY_TEXT_IMAGE, &first, NULL}};
#define SCENES ((int)(sizeof scenes / sizeof *scenes))

/* Options for two latent frames of 3 x 2 tokens. */
static ith_generate_options options_of(const scene *s, stopped_run *r)
{
    ith_pipeline *opened = NULL;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    const char *model = temporary_path(folder, s->kind == TINY_IMAGE ? "i2v" : "ti2v");
    check(context, ith_pipeline_open(context, model, &opened));
    stopped_run_begin(r, opened, folder);
    options.prompt = "A green square moves upwards.", options.negative = "a circle";
    options.frames = 5, options.height = HEIGHT, options.width = WIDTH, options.steps = STEPS;
    options.shift = 3, options.guidance[0] = 3, options.guidance[1] = 2;
    options.precision = ITH_PRECISION_F32, options.seed = 3;
    options.image = s->first, options.last_image = s->last;
    return options;
}

static ith_generate_options resumed(const stopped_run *r, const scene *s)
{
    ith_generate_options options = stopped_run_options(r);
    options.image = s->first, options.last_image = s->last;
    return options;
}

static void after_any_step(void **state)
{
    (void)state;
    for (int i = 0; i < SCENES; i++) {
        stopped_run r;
        const ith_generate_options options = options_of(&scenes[i], &r), again = resumed(&r, &scenes[i]);
        stopped_run_check_steps(&r, &options, &again, 1);
        ith_pipeline_close(&r.pipeline);
    }
}

/* The predicted time of a run on one rank. */
static ith_video_cost predict(stopped_run *r, const ith_generate_options *options)
{
    video_scene bed;
    ith_video_problem problem = ITH_VIDEO_PROBLEM_INIT;
    ith_video_cost cost = ITH_VIDEO_COST_INIT;
    video_scene_set(&bed, true);
    check(context, ith_video_problem_read(r->pipeline, options, &problem));
    check(context, ith_video_predict(context, &problem, NULL, options->cfg, &bed.machine, 1, NULL, NULL, &cost));
    return cost;
}

/* Of a run with all steps done, no time is predicted for its prompts and steps, and none for its images, unless their
 * latents are part of the result. The prediction of its memory is right, up to a few KB for the file of the saved run,
 * and less than the memory of the whole run. */
static void check_prediction(stopped_run *r, const scene *s, const ith_generate_options *whole,
                             const ith_generate_options *again)
{
    const ith_video_cost before = predict(r, whole), left = predict(r, again);
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    int64_t whole_bytes = 0;
    assert_true(before.text_seconds > 0 && before.image_seconds > 0 && before.denoise_seconds > 0);
    assert_true(left.text_seconds == 0 && left.denoise_seconds == 0);
    assert_true(left.image_seconds == (s->kind == TINY_TEXT_IMAGE ? before.image_seconds : 0));
    assert_true(left.decode_seconds == before.decode_seconds && left.decode_seconds > 0);
    assert_true(left.seconds == left.image_seconds + left.decode_seconds + left.write_seconds);
    check(context, ith_pipeline_predict(r->pipeline, whole, 1, 1, &whole_bytes));
    ith_context *own = NULL;
    ith_pipeline *fresh = NULL;
    check(NULL, ith_context_create(NULL, &own));
    check(own, ith_pipeline_open(own, temporary_path(folder, s->kind == TINY_IMAGE ? "i2v" : "ti2v"), &fresh));
    check(own, ith_pipeline_generate(fresh, NULL, again, &report));
    const double predicted = (double)report.predicted_bytes, held = (double)report.peak_bytes;
    if (predicted + 8192 < held || predicted > held * 1.05 || report.predicted_bytes >= whole_bytes)
        fail_msg("%.0f bytes held, %.0f predicted, %lld for the whole run", held, predicted, (long long)whole_bytes);
    ith_pipeline_close(&fresh);
    ith_context_destroy(&own);
    assert_true(left.memory_bytes < before.memory_bytes);
}

/* A run with all steps done needs only the decoder. With TI2V the image is encoded: its latents are part of the
 * result. */
static void after_all_steps(void **state)
{
    (void)state;
    for (int i = 0; i < SCENES; i++) {
        stopped_run r;
        int64_t count = 0;
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        ith_generate_options options = options_of(&scenes[i], &r), again = resumed(&r, &scenes[i]);
        options.checkpoint_file = r.saved;
        float *whole = stopped_run_whole(&r, 1, &options, &count);
        again.resume_file = r.saved;
        for (int ranks = 1; ranks <= 2; ranks++) {
            float *pieces = stopped_run_resume(&r, ranks, &again, STEPS);
            assert_memory_equal(pieces, whole, (size_t)count * sizeof *whole);
            free(pieces);
            check(context, engine_generate(context, r.pipeline, ranks, &again, &report));
            assert_int_equal(report.steps_resumed, STEPS);
            assert_int_equal(report.image_seconds > 0, scenes[i].kind == TINY_TEXT_IMAGE);
        }
        free(whole);
        options.checkpoint_file = NULL;
        check_prediction(&r, &scenes[i], &options, &again);
        ith_pipeline_close(&r.pipeline);
    }
}

static void on_another_number_of_ranks(void **state)
{
    (void)state;
    static const rank_change changes[] = {
        {1, 3, ITH_STRATEGY_ULYSSES, {ITH_CFG_BATCH, ITH_CFG_BATCH}},
        {4, 2, ITH_STRATEGY_ULYSSES, {ITH_CFG_PARALLEL, ITH_CFG_PARALLEL}},
        {2, 3, ITH_STRATEGY_RING, {ITH_CFG_SEQUENTIAL, ITH_CFG_SEQUENTIAL}},
    };
    for (int i = 0; i < SCENES; i++) {
        stopped_run r;
        const ith_generate_options options = options_of(&scenes[i], &r), again = resumed(&r, &scenes[i]);
        stopped_run_check_ranks(&r, &options, &again, changes, sizeof changes / sizeof *changes);
        ith_pipeline_close(&r.pipeline);
    }
}

static void refuse(const stopped_run *r, const ith_image *image, const ith_image *last_image, const char *words)
{
    ith_generate_options options = stopped_run_options(r);
    options.image = image, options.last_image = last_image;
    assert_int_equal(engine_generate(context, r->pipeline, 2, &options, NULL), ITH_ERR_ARGUMENT);
    if (!strstr(ith_context_error(context), words))
        fail_msg("no '%s' in: %s", words, ith_context_error(context));
}

static void other_images_are_refused(void **state)
{
    (void)state;
    uint8_t changed[HEIGHT * WIDTH * 3];
    memcpy(changed, pixels[0], sizeof changed);
    changed[sizeof changed - 1] ^= 1;
    const ith_image other = {sizeof other, changed, HEIGHT, WIDTH}, turned = {sizeof turned, pixels[0], WIDTH, HEIGHT};
    for (int i = 0; i < SCENES; i++) {
        const scene *s = &scenes[i];
        stopped_run r;
        const ith_generate_options options = options_of(s, &r);
        stopped_run_stop(&r, 1, &options, 1, 1);
        refuse(&r, NULL, s->last, "image differs from the saved run's");
        refuse(&r, &other, s->last, "image differs from the saved run's");
        refuse(&r, &turned, s->last, "image differs from the saved run's");
        refuse(&r, s->first, s->last ? NULL : &last, "last_image differs from the saved run's");
        refuse(&r, s->first, &other, "last_image differs from the saved run's");
        const ith_generate_options same = resumed(&r, s);
        free(stopped_run_resume(&r, 1, &same, 1));
        ith_pipeline_close(&r.pipeline);
    }
}

static int set_up(void **state)
{
    const int failed = folder_set_up(state);
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++)
        pixels[0][i] = (uint8_t)(i * 7), pixels[1][i] = (uint8_t)(i / 96 * 5);
    const char *i2v = temporary_path(folder, "i2v"), *ti2v = temporary_path(folder, "ti2v");
    mkdir(i2v, 0700);
    mkdir(ti2v, 0700);
    tiny_model_write(context, TINY_IMAGE, i2v);
    tiny_model_write(context, TINY_TEXT_IMAGE, ti2v);
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_any_step),
        cmocka_unit_test(after_all_steps),
        cmocka_unit_test(on_another_number_of_ranks),
        cmocka_unit_test(other_images_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, folder_tear_down);
}
