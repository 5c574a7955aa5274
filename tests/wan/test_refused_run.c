/* SPDX-License-Identifier: Apache-2.0 */
/* A run in which one allocation fails: a video from an image, with a LoRA, a saved run and previews. The run ends with
 * a sentence, or goes on without the memory. Nothing leaks, no file is incomplete, and a saved run can be resumed.
 * ITHACA_REFUSALS=all: every allocation fails in turn, otherwise a sample of them. */
#include "base/context.h"
#include "media/image.h"
#include "media/media.h"
#include "media/picture.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/tiny_model.h"
#include "support/folder_fixture.h"

#include <ithaca/files.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDE 16
#define STEPS 2 /* one step with each expert */
#define OLD "an earlier video"

static char model[256], lora[256], picture[256], work[256];
static char *latents; /* the latents file of a run in which nothing fails */
static size_t latents_bytes;

/* A run with the options and callbacks that the command line would set. */
typedef struct trial {
    int ranks;
    ith_context *media; /* the context of the thread that writes */
    ith_video_writer *writer;
    ith_generate_report report;
} trial;

/* A file of the run, valid for the next seven calls. */
static const char *output(const char *name)
{
    return temporary_path(work, name);
}

static ith_status take_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    trial *t = user;
    const ith_video_options video = {.width = width, .height = height, .fps = 8, .title = "a"};
    ith_status status = index ? ITH_OK : ith_video_open(t->media, output("clip.gif"), &video, &t->writer);
    return status ? status : ith_video_add(t->writer, rgb);
}

static ith_status take_preview(void *user, int64_t step, const uint8_t *rgb, int64_t height, int64_t width)
{
    const trial *t = user;
    (void)step;
    return ith_picture_write(t->media, output("preview.png"), rgb, height, width, 2);
}

/* Opens the model, generates, and writes the video. */
static ith_status make_video(ith_context *own, trial *t, ith_generate_options *options)
{
    const ith_lora_file added = {sizeof added, lora, 0.5, ITH_LORA_BOTH};
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_pipeline *pipeline = NULL;
    int64_t bytes = 0;
    files.folder = model, files.loras = &added, files.lora_count = 1;
    options->latents_file = output("latents.safetensors"), options->checkpoint_file = output("run.safetensors");
    options->on_frame = take_frame, options->on_preview = take_preview, options->preview_every = 1;
    options->user = t, options->threads = t->ranks;
    ith_status status = ith_pipeline_open_files(own, &files, &pipeline);
    if (!status)
        status = ith_pipeline_resolve(pipeline, options);
    if (!status)
        status = ith_pipeline_predict(pipeline, options, t->ranks, t->ranks, &bytes);
    if (!status)
        status = engine_generate(own, pipeline, t->ranks, options, &t->report);
    ith_pipeline_close(&pipeline);
    if (!status)
        status = ith_video_finish(&t->writer);
    return status;
}

static ith_status make(ith_context *own, trial *t, ith_generate_options *options)
{
    t->report = (ith_generate_report)ITH_GENERATE_REPORT_INIT;
    ith_status status = ith_context_clone(own, &t->media);
    if (!status)
        status = make_video(own, t, options);
    ith_video_discard(&t->writer);
    if (status && t->media && *ith_context_error(t->media))
        ith_fail(own, status, "%s", ith_context_error(t->media)); /* the callback's sentence */
    ith_context_destroy(&t->media);
    return status;
}

static ith_status begin(ith_context *own, trial *t)
{
    uint8_t *rgb = NULL;
    ith_image image = ITH_IMAGE_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    check(context, ith_image_read(context, picture, &rgb, &image.height, &image.width));
    image.rgb = rgb;
    options.image = &image, options.prompt = "a red circle", options.negative = "a square";
    options.frames = 1, options.height = options.width = SIDE, options.steps = STEPS, options.seed = 3;
    options.guidance[0] = 3, options.guidance[1] = 2, options.precision = ITH_PRECISION_F32;
    ith_status status = make(own, t, &options);
    free(rgb);
    return status;
}

/* ---- Files after a run ----------------------------------------------------------------------------------------- */

static bool is_there(const char *name)
{
    return !access(output(name), F_OK);
}

static void empty_work(void)
{
    static const char *const names[] = {"run.safetensors", "latents.safetensors", "preview.png", "clip.gif"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(output(names[i]));
    if (temporary_count(work))
        fail_msg("something else is left in %s", work);
}

static void assert_latents(void)
{
    size_t bytes = 0;
    char *data = temporary_read(output("latents.safetensors"), &bytes);
    assert_int_equal(bytes, latents_bytes);
    assert_memory_equal(data, latents, bytes);
    free(data);
}

/* Checks that the saved run, when resumed, gives the latents of a run in which nothing fails. */
static void assert_resumes(int64_t step)
{
    trial t = {.ranks = 1};
    uint8_t *rgb = NULL;
    ith_image image = ITH_IMAGE_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    check(context, ith_image_read(context, picture, &rgb, &image.height, &image.width));
    image.rgb = rgb, options.image = &image, options.resume_file = output("run.safetensors");
    check(context, make(context, &t, &options));
    assert_int_equal(t.report.steps_resumed, step);
    assert_latents();
    free(rgb);
}

static void inspect(ith_status status, const trial *t)
{
    int64_t height = 0, width = 0;
    uint8_t *rgb = NULL;
    size_t bytes = 0;
    const int there = is_there("run.safetensors") + is_there("latents.safetensors") + is_there("preview.png");
    assert_int_equal(temporary_count(work), there + 1);
    char *video = temporary_read(output("clip.gif"), &bytes);
    if (status)
        assert_string_equal(video, OLD);
    else
        assert_memory_equal(video, "GIF8", 4);
    free(video);
    if (is_there("preview.png")) {
        check(context, ith_image_read(context, output("preview.png"), &rgb, &height, &width));
        assert_true(height == SIDE / 4 && width == SIDE / 4);
        free(rgb);
    }
    assert_int_equal(is_there("latents.safetensors"), t->report.latents_saved);
    if (t->report.latents_saved)
        assert_latents();
    assert_int_equal(is_there("run.safetensors"), t->report.saved_step >= 0);
    if (t->report.saved_step >= 0)
        assert_resumes(t->report.saved_step);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static ith_status run_and_inspect(ith_context *own, void *user)
{
    trial *t = user;
    empty_work();
    temporary_write(output("clip.gif"), OLD, strlen(OLD));
    const ith_status status = begin(own, t);
    inspect(status, t);
    return status;
}

static void refuse(int ranks, long step)
{
    trial t = {.ranks = ranks};
    const char *asked = getenv("ITHACA_REFUSALS");
    if (!latents) {
        trial whole = {.ranks = 1};
        check(context, begin(context, &whole));
        latents = temporary_read(output("latents.safetensors"), &latents_bytes);
    }
    const long calls = refuse_every_allocation(run_and_inspect, &t, asked && !strcmp(asked, "all") ? 1 : step);
    printf("%ld allocations on %d ranks\n", calls, ranks);
    assert_true(calls > 500);
    empty_work();
}

static void on_one_rank(void **state)
{
    (void)state;
    refuse(1, 29);
}

static void on_two_ranks(void **state)
{
    (void)state;
    refuse(2, 61);
}

static int set_up(void **state)
{
    const int failed = folder_set_up(state);
    uint8_t pixels[SIDE * SIDE * 3];
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        pixels[i] = (uint8_t)(i * 7);
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(work, sizeof work, "%s/work", folder);
    snprintf(lora, sizeof lora, "%s/lora.safetensors", folder);
    snprintf(picture, sizeof picture, "%s/first.png", folder);
    mkdir(model, 0700);
    mkdir(work, 0700);
    tiny_model_write(context, TINY_IMAGE, model);
    tiny_lora_write(context, lora);
    check(context, ith_picture_write(context, picture, pixels, SIDE, SIDE, 1));
    return failed;
}

static int tear_down(void **state)
{
    free(latents);
    return folder_tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_one_rank), cmocka_unit_test(on_two_ranks)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
