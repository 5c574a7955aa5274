/* SPDX-License-Identifier: Apache-2.0 */
/* Videos from images compared with diffusers, on any number of ranks: the golden runs of an I2V model, from a first
 * image and from a first and a last image; of an I2V and of a FLF2V model of Wan 2.1; and of a TI2V model, from an
 * image and from text. The conditions, the latents after the last step and the frames are compared. Wrong images and
 * options are refused. */
#include "support/compare.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/find_tensor.h"
#include "support/engine/golden_run.h"
#include "support/fixture.h"
#include "support/temporary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define I2V "golden/i2v/model"
#define TI2V "golden/ti2v/model"
#define I2V_21 "golden/i2v21" /* models of Wan 2.1, with an image encoder */
#define FLF2V_21 "golden/flf2v21"
#define PLAIN "../models/shapes"
#define SHAPES "../models/shapes-i2v"

/* The relative difference of the last `part` numbers of a tensor in two files; of all its numbers if part is 0. */
static double difference(const ith_tensor_file *ours, const ith_tensor_file *theirs, const char *name, int64_t part)
{
    int64_t count, wanted;
    const float *x = find_floats(ours, name, &count), *y = find_floats(theirs, name, &wanted);
    assert_int_equal(count, wanted);
    part = part ? part : count;
    return relative_l2(x + count - part, y + count - part, part);
}

/* The share of the numbers of the frames that differ by more than 1 of 255. */
static double far_pixels(const ith_tensor_file *ours, const ith_tensor_file *theirs)
{
    const ith_tensor *x = ith_tensor_file_find(ours, "frames"), *y = ith_tensor_file_find(theirs, "frames");
    int64_t far = 0;
    assert_int_equal(x->bytes, y->bytes);
    for (int64_t i = 0; i < x->bytes; i++)
        far += abs(((const uint8_t *)x->data)[i] - ((const uint8_t *)y->data)[i]) > 1;
    return (double)far / (double)x->bytes;
}

static const ith_image *image_of(const ith_tensor_file *file, const char *name, ith_image *out)
{
    const ith_tensor *tensor = find_tensor(file, name);
    out->rgb = tensor->data, out->height = tensor->shape[0], out->width = tensor->shape[1];
    return out;
}

static void open_golden(const char *model, const char *golden, bool first, bool last, golden_run *run,
                        ith_image *images, ith_pipeline **pipeline)
{
    golden_run_open(context, golden, run);
    check(context, ith_pipeline_open(context, model, pipeline));
    run->options.fit = ITH_FIT_STRETCH; /* as diffusers fits pictures */
    run->options.image = first ? image_of(run->file, "first", &images[0]) : NULL;
    run->options.last_image = last ? image_of(run->file, "last", &images[1]) : NULL;
}

static void check_golden(const char *model, const char *golden, bool first, bool last)
{
    static const char *const conditions[] = {"condition", "first_latent"};
    static const struct {
        int ranks;
        ith_strategy strategy;
        ith_cfg cfg;
    } ways[] = {{1, ITH_STRATEGY_AUTO, ITH_CFG_BATCH},    {1, ITH_STRATEGY_AUTO, ITH_CFG_SEQUENTIAL},
                {2, ITH_STRATEGY_ULYSSES, ITH_CFG_BATCH}, {3, ITH_STRATEGY_RING, ITH_CFG_BATCH},
                {4, ITH_STRATEGY_AUTO, ITH_CFG_PARALLEL}, {4, ITH_STRATEGY_RING, ITH_CFG_SEQUENTIAL}};
    golden_run run;
    ith_pipeline *pipeline = NULL;
    ith_image images[2] = {ITH_IMAGE_INIT, ITH_IMAGE_INIT};
    open_golden(model, golden, first, last, &run, images, &pipeline);
    const ith_tensor *trace = ith_tensor_file_find(run.file, "latents");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
        attention.strategy = ways[i].strategy;
        run.options.attention = &attention, run.options.cfg = ways[i].cfg;
        ith_tensor_file *dump = golden_generate(context, pipeline, ways[i].ranks, &run.options, NULL);
        double condition = 0, final = 0;
        for (size_t j = 0; first && j < sizeof conditions / sizeof *conditions; j++)
            if (ith_tensor_file_find(run.file, conditions[j]))
                condition = difference(dump, run.file, conditions[j], 0);
        if (ith_tensor_file_find(run.file, "final"))
            final = difference(dump, run.file, "final", 0);
        const double latents = difference(dump, run.file, "latents", trace->bytes / 4 / trace->shape[0]);
        const double far = far_pixels(dump, run.file);
        print_message("%d ranks: condition %.1e, latents %.1e, final %.1e, far pixels %.1e\n", ways[i].ranks, condition,
                      latents, final, far);
        assert_true(condition <= 5e-5);
        assert_true(latents <= 1e-3);
        assert_true(final <= 1e-3);
        assert_true(far <= 1e-4);
        ith_tensor_file_close(&dump);
    }
    ith_pipeline_close(&pipeline);
    ith_tensor_file_close(&run.file);
}

static void a_first_image(void **state)
{
    (void)state;
    check_golden(I2V, "golden/i2v/first.safetensors", true, false);
}

static void a_first_and_a_last_image(void **state)
{
    (void)state;
    check_golden(I2V, "golden/i2v/first_last.safetensors", true, true);
}

static void the_rows_of_an_image_encoder(void **state)
{
    (void)state;
    check_golden(I2V_21, "golden/i2v21/first.safetensors", true, false);
    check_golden(FLF2V_21, "golden/i2v21/first_last.safetensors", true, true);
}

static void the_first_latent_frame_of_an_image(void **state)
{
    (void)state;
    check_golden(TI2V, "golden/ti2v/image.safetensors", true, false);
}

static void no_image(void **state)
{
    (void)state;
    check_golden(TI2V, "golden/ti2v/text.safetensors", false, false);
}

/* The PSNR of the frames of two files, in dB. */
static double frames_psnr(const ith_tensor_file *ours, const ith_tensor_file *theirs)
{
    const ith_tensor *x = ith_tensor_file_find(ours, "frames"), *y = ith_tensor_file_find(theirs, "frames");
    double squares = 0;
    assert_int_equal(x->bytes, y->bytes);
    for (int64_t i = 0; i < x->bytes; i++) {
        const int off = ((const uint8_t *)x->data)[i] - ((const uint8_t *)y->data)[i];
        squares += off * off;
    }
    return 10 * log10(255.0 * 255.0 * (double)x->bytes / squares);
}

/* Runs in bf16 compared with the golden runs, which diffusers made in f32. The latents are as close to them as the
 * latents of diffusers with its transformer in bf16. The frames of diffusers, decoded in f32, then reach a PSNR of
 * 53.8, 53.8, 56.5 and 53.7 dB; ours are decoded in bf16 too. */
static void bf16_comes_as_close_as_the_reference_in_bf16(void **state)
{
    (void)state;
    static const struct {
        const char *model, *golden;
        bool first, last;
        double latents;
    } cases[] = {{I2V, "golden/i2v/first.safetensors", true, false, 5.9e-3},
                 {I2V, "golden/i2v/first_last.safetensors", true, true, 5.8e-3},
                 {TI2V, "golden/ti2v/image.safetensors", true, false, 9.1e-3},
                 {TI2V, "golden/ti2v/text.safetensors", false, false, 8.4e-3}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        golden_run run;
        ith_pipeline *pipeline = NULL;
        ith_image images[2] = {ITH_IMAGE_INIT, ITH_IMAGE_INIT};
        open_golden(cases[i / 2].model, cases[i / 2].golden, cases[i / 2].first, cases[i / 2].last, &run, images,
                    &pipeline);
        const ith_tensor *trace = ith_tensor_file_find(run.file, "latents");
        run.options.precision = ITH_PRECISION_BF16;
        ith_tensor_file *dump = golden_generate(context, pipeline, i % 2 ? 2 : 1, &run.options, NULL);
        const double psnr = frames_psnr(dump, run.file);
        const double latents = difference(dump, run.file, "latents", trace->bytes / 4 / trace->shape[0]);
        print_message("%s, %d ranks: %.1f dB, last latents %.1e\n", cases[i / 2].golden, i % 2 ? 2 : 1, psnr, latents);
        assert_true(psnr >= 50);
        assert_true(latents <= cases[i / 2].latents);
        ith_tensor_file_close(&dump);
        ith_pipeline_close(&pipeline);
        ith_tensor_file_close(&run.file);
    }
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static uint8_t grey[64 * 1000 * 3];

static void expect_refusal(ith_pipeline *pipeline, const ith_generate_options *asked, const char *sentence)
{
    ith_generate_options options = *asked;
    assert_int_equal(ith_pipeline_resolve(pipeline, &options), ITH_ERR_ARGUMENT);
    if (!strstr(ith_context_error(context), sentence))
        fail_msg("'%s' lacks '%s'", ith_context_error(context), sentence);
}

static void images_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    ith_pipeline *plain = NULL, *pipeline = NULL;
    ith_image image = ITH_IMAGE_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    image.rgb = grey, image.height = 64, image.width = 96;
    options.prompt = "a", options.frames = 5, options.height = 64, options.width = 96;
    check(context, ith_pipeline_open(context, PLAIN, &plain));
    check(context, ith_pipeline_open(context, I2V, &pipeline));
    expect_refusal(pipeline, &options, "and image is needed");
    options.last_image = &image;
    expect_refusal(pipeline, &options, "and image is needed");
    options.image = &image;
    check(context, ith_pipeline_resolve(pipeline, &options));
    expect_refusal(plain, &options, "takes no image");
    options.frames = 1;
    expect_refusal(pipeline, &options, "leave the last image out");
    options.last_image = NULL, options.frames = 5;
    options.fit = 3;
    expect_refusal(pipeline, &options, "fit is 3; 0 (auto), 1 (cover) and 2 (stretch) are known");
    options.fit = 0, options.area = -1;
    expect_refusal(pipeline, &options, "area is -1");
    options.area = 0, image.rgb = NULL;
    expect_refusal(pipeline, &options, "image has no pixels");
    image.rgb = grey, image.height = 0;
    expect_refusal(pipeline, &options, "image has 96 x 0 pixels");
    image.height = 64; /* the side that is given is named, not the one that would follow from it */
    options.height = 0, options.width = 1000000;
    expect_refusal(pipeline, &options, "width is 1000000");
    options.width = INT64_MAX;
    expect_refusal(pipeline, &options, "width is 9223372036854775807");
    options.height = -16, options.width = 0;
    expect_refusal(pipeline, &options, "height is -16");
    options.height = 64, options.width = 96;
    options.image = NULL, options.area = 4096;
    expect_refusal(plain, &options, "give height and width");
    ith_pipeline_close(&plain);
    ith_pipeline_close(&pipeline);
}

/* A model of Wan 2.1 takes one image, or two. */
static void models_with_an_image_encoder_take_their_number_of_images(void **state)
{
    (void)state;
    ith_pipeline *one = NULL, *two = NULL;
    ith_image image = ITH_IMAGE_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_model_info info = ITH_MODEL_INFO_INIT;
    image.rgb = grey, image.height = 64, image.width = 96;
    options.prompt = "a", options.frames = 5, options.height = 64, options.width = 96;
    check(context, ith_pipeline_open(context, I2V_21, &one));
    check(context, ith_pipeline_open(context, FLF2V_21, &two));
    check(context, ith_pipeline_info(one, &info));
    assert_true(info.image_use == ITH_IMAGE_NEEDED && info.least_images == 1 && info.most_images == 1);
    check(context, ith_pipeline_info(two, &info));
    assert_true(info.image_use == ITH_IMAGE_NEEDED && info.least_images == 2 && info.most_images == 2);
    expect_refusal(one, &options, "and image is needed");
    expect_refusal(two, &options, "and image is needed");
    options.image = &image;
    check(context, ith_pipeline_resolve(one, &options));
    expect_refusal(two, &options, "and last_image is needed");
    options.last_image = &image;
    expect_refusal(one, &options, "FLF2V models take both");
    check(context, ith_pipeline_resolve(two, &options));
    options.frames = 1;
    expect_refusal(two, &options, "needs more than one frame");
    ith_pipeline_close(&one);
    ith_pipeline_close(&two);
}

/* The size by diffusers' rule: round(sqrt(area shape)) // 16 * 16. */
static void the_size_follows_from_the_image(void **state)
{
    (void)state;
    static const struct {
        int64_t image[2], asked[2], area, height, width;
    } cases[] = {{{480, 832}, {0, 0}, 480 * 832, 480, 832}, {{64, 96}, {0, 0}, 64 * 96, 64, 96},
                 {{100, 100}, {0, 0}, 64 * 96, 64, 64},     {{50, 200}, {0, 0}, 128 * 128, 64, 256},
                 {{1, 1000}, {0, 0}, 64 * 96, 16, 2464},    {{60, 90}, {128, 0}, 0, 128, 192},
                 {{60, 90}, {0, 128}, 0, 80, 128},          {{60, 90}, {64, 64}, 0, 64, 64},
                 {{1000, 1000}, {0, 0}, 0, 624, 624}};
    static uint8_t pixels[1000 * 1000 * 3];
    ith_pipeline *pipeline = NULL;
    check(context, ith_pipeline_open(context, I2V, &pipeline));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_image image = {sizeof image, pixels, cases[i].image[0], cases[i].image[1]};
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.frames = 5, options.image = &image, options.area = cases[i].area;
        options.height = cases[i].asked[0], options.width = cases[i].asked[1];
        check(context, ith_pipeline_resolve(pipeline, &options));
        print_message("%d: %d x %d\n", (int)i, (int)options.height, (int)options.width);
        assert_int_equal(options.height, cases[i].height);
        assert_int_equal(options.width, cases[i].width);
        assert_ptr_equal(options.image, &image);
    }
    ith_pipeline_close(&pipeline);
}

/* The sizes of videos of TI2V compared with the reference's best_output_size, which tools/make_size_golden.py called
 * for many shapes and areas. */
static void the_size_is_that_of_the_reference(void **state)
{
    (void)state;
    enum { SIDE = 4096 };
    uint8_t *pixels = calloc(SIDE * SIDE, 3);
    FILE *table = fopen("golden/image_sizes.txt", "r");
    ith_pipeline *pipeline = NULL;
    int shapes = 0, wrong = 0;
    long long in[3], out[2];
    assert_non_null(pixels);
    assert_non_null(table);
    check(context, ith_pipeline_open(context, TI2V, &pipeline));
    for (; fscanf(table, "%lld %lld %lld %lld %lld", &in[0], &in[1], &in[2], &out[0], &out[1]) == 5; shapes++) {
        const ith_image image = {sizeof image, pixels, in[1], in[0]};
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.frames = 5, options.image = &image, options.area = in[2];
        check(context, ith_pipeline_resolve(pipeline, &options));
        if (options.width != out[0] || options.height != out[1]) {
            print_message("%lld x %lld in %lld: %lld x %lld instead of %lld x %lld\n", in[0], in[1], in[2],
                          (long long)options.width, (long long)options.height, out[0], out[1]);
            wrong++;
        }
    }
    assert_int_equal(shapes, 667);
    assert_int_equal(wrong, 0);
    ith_pipeline_close(&pipeline);
    fclose(table);
    free(pixels);
}

/* ---- Saved runs -------------------------------------------------------------------------------------------------- */

static void note_step(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)total;
    *(bool *)user |= stage == ITH_STAGE_DENOISE && done >= 2 * ITH_PROGRESS_UNIT;
}

static bool has_noted(void *user)
{
    return *(bool *)user;
}

/* A run that was stopped after two steps and resumed has the latents of one run. The saved run keeps no image,
 * so the same image must be given again. */
static void a_resumed_run_needs_its_image(void **state)
{
    (void)state;
    golden_run run;
    ith_pipeline *pipeline = NULL;
    ith_image first = ITH_IMAGE_INIT, other = ITH_IMAGE_INIT;
    bool noted = false;
    char *folder = temporary_folder();
    char whole[320], resumed[320], saved[320];
    snprintf(whole, sizeof whole, "%s", temporary_path(folder, "whole.safetensors"));
    snprintf(resumed, sizeof resumed, "%s", temporary_path(folder, "resumed.safetensors"));
    snprintf(saved, sizeof saved, "%s", temporary_path(folder, "saved.safetensors"));
    golden_run_open(context, "golden/ti2v/image.safetensors", &run);
    check(context, ith_pipeline_open(context, TI2V, &pipeline));
    run.options.image = image_of(run.file, "first", &first);
    run.options.latents_file = whole;
    check(context, ith_pipeline_generate(pipeline, NULL, &run.options, NULL));

    ith_generate_options stopped = run.options;
    stopped.checkpoint_file = saved, stopped.latents_file = NULL;
    stopped.on_progress = note_step, stopped.should_stop = has_noted, stopped.user = &noted;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &stopped, NULL), ITH_ERR_INTERRUPTED);

    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.resume_file = saved, options.noise_file = run.options.noise_file, options.latents_file = resumed;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "give the same image again"));
    other.rgb = grey, other.height = 64, other.width = 96;
    options.image = &other;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_ARGUMENT);
    options.image = &first;
    check(context, ith_pipeline_generate(pipeline, NULL, &options, NULL));
    ith_tensor_file *files[2] = {NULL};
    check(context, ith_tensor_file_open(context, whole, &files[0]));
    check(context, ith_tensor_file_open(context, resumed, &files[1]));
    assert_true(difference(files[1], files[0], "latents", 0) == 0);
    ith_tensor_file_close(&files[0]);
    ith_tensor_file_close(&files[1]);
    ith_pipeline_close(&pipeline);
    ith_tensor_file_close(&run.file);
    temporary_remove(folder);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void memory_is_predicted(void **state)
{
    (void)state;
    static const char *const models[] = {I2V, TI2V, I2V_21, FLF2V_21};
    static uint8_t pixels[128 * 192 * 3];
    const ith_image image = {sizeof image, pixels, 128, 192};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.frames = 9, options.height = 256, options.width = 256, options.steps = 1;
        options.last_image = !strcmp(models[i], FLF2V_21) ? &image : NULL;
        options.precision = ITH_PRECISION_F32, options.threads = 2, options.image = &image;
        ith_context *own = NULL;
        ith_pipeline *pipeline = NULL;
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        check(context, ith_context_create(NULL, &own));
        check(own, ith_pipeline_open(own, models[i], &pipeline));
        check(own, ith_pipeline_generate(pipeline, NULL, &options, &report));
        const double ratio = (double)report.predicted_bytes / (double)report.peak_bytes;
        print_message("predicted %.2f MB, held %.2f MB\n", (double)report.predicted_bytes / 1e6,
                      (double)report.peak_bytes / 1e6);
        assert_true(ratio > 0.97 && ratio < 1.03);
        ith_pipeline_close(&pipeline);
        ith_context_destroy(&own);
    }
}

/* A long strip takes more memory to scale than everything else, be it the first image or the last. */
static void memory_of_a_strip_is_predicted(void **state)
{
    (void)state;
    enum { LONG = 65536 };
    static uint8_t pixels[LONG * 3];
    const ith_image strip = {sizeof strip, pixels, LONG, 1}, small = {sizeof small, pixels, 32, 32};
    for (int last = 0; last < 2; last++) {
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.frames = 5, options.height = 16, options.width = 64, options.steps = 1;
        options.precision = ITH_PRECISION_F32, options.threads = 1;
        options.image = last ? &small : &strip, options.last_image = last ? &strip : &small;
        ith_context *own = NULL;
        ith_pipeline *pipeline = NULL;
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        check(context, ith_context_create(NULL, &own));
        check(own, ith_pipeline_open(own, I2V, &pipeline));
        check(own, ith_pipeline_generate(pipeline, NULL, &options, &report));
        const double ratio = (double)report.predicted_bytes / (double)report.peak_bytes;
        print_message("predicted %.2f MB, held %.2f MB\n", (double)report.predicted_bytes / 1e6,
                      (double)report.peak_bytes / 1e6);
        assert_true(report.peak_bytes > (int64_t)LONG * 64 * 3 && ratio > 0.97 && ratio < 1.03);
        ith_pipeline_close(&pipeline);
        ith_context_destroy(&own);
    }
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

typedef struct rank_job {
    ith_pipeline *pipeline;
    ith_generate_options options;
    ith_image images[2];
} rank_job;

static ith_status generate_with_own_image(ith_context *rank_context, ith_comm *comm, void *user)
{
    (void)rank_context;
    rank_job *job = user;
    ith_generate_options options = job->options;
    options.image = &job->images[ith_comm_rank(comm)];
    return ith_pipeline_generate(job->pipeline, comm, &options, NULL);
}

static void ranks_must_have_the_same_image(void **state)
{
    (void)state;
    static uint8_t other[64 * 96 * 3] = {[64 * 96 * 3 - 1] = 1};
    rank_job job = {.options = ITH_GENERATE_OPTIONS_INIT,
                    .images = {{sizeof(ith_image), grey, 64, 96}, {sizeof(ith_image), other, 64, 96}}};
    job.options.prompt = "a", job.options.frames = 5, job.options.steps = 1;
    job.options.height = 64, job.options.width = 96;
    check(context, ith_pipeline_open(context, I2V, &job.pipeline));
    assert_int_equal(ith_run_ranks(context, 2, 1, generate_with_own_image, &job), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "image on rank 1 and on rank 0 differ"));
    ith_pipeline_close(&job.pipeline);
}

enum { SIDE = 128, PIXELS = SIDE * SIDE };

/* Whether a pixel is more yellow than navy. */
static bool is_yellow(const uint8_t *rgb)
{
    return rgb[0] > 120 && rgb[2] < 120;
}

/* The mean column of the yellow pixels of a frame. */
static double yellow_column(const uint8_t *frame)
{
    double sum = 0, count = 0;
    for (int i = 0; i < PIXELS; i++)
        if (is_yellow(frame + 3 * i))
            sum += i % SIDE, count++;
    assert_true(count > 0);
    return sum / count;
}

/* The trained model goes on from a drawn square: the first frame shows it, and it moves as the prompt says. */
static void the_small_model_moves_what_the_image_shows(void **state)
{
    (void)state;
    enum { LEFT = 16, TOP = 50, WIDTH = 38 };
    static uint8_t pixels[3 * PIXELS];
    ith_image image = ITH_IMAGE_INIT;
    ith_pipeline *pipeline = NULL;
    for (int i = 0; i < PIXELS; i++) {
        const int x = i % SIDE - LEFT, y = i / SIDE - TOP;
        const bool inside = x >= 0 && x < WIDTH && y >= 0 && y < WIDTH;
        memcpy(pixels + 3 * i, inside ? "\xf0\xdc\x32" : "\x14\x1c\x50", 3);
    }
    image.rgb = pixels, image.height = image.width = SIDE;
    check(context, ith_pipeline_open(context, SHAPES, &pipeline));
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A yellow square moves to the right on a navy background.", options.image = &image;
    options.frames = 17, options.height = options.width = SIDE, options.steps = 12;
    options.guidance[0] = options.guidance[1] = 1;
    ith_tensor_file *dump = golden_generate(context, pipeline, 1, &options, NULL);
    const uint8_t *frames = ith_tensor_file_find(dump, "frames")->data;
    int wrong = 0;
    for (int i = 0; i < PIXELS; i++)
        wrong += is_yellow(frames + 3 * i) != is_yellow(pixels + 3 * i);
    const double moved = yellow_column(frames + 16 * 3 * PIXELS) - yellow_column(frames);
    printf("small model: %d pixels of the first frame are not the image's; it moves by %.1f pixels\n", wrong, moved);
    assert_true(wrong <= 300); /* of 1444 pixels inside the square */
    assert_true(moved >= 30);
    ith_tensor_file_close(&dump);
    ith_pipeline_close(&pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_image),
        cmocka_unit_test(a_first_and_a_last_image),
        cmocka_unit_test(the_rows_of_an_image_encoder),
        cmocka_unit_test(the_first_latent_frame_of_an_image),
        cmocka_unit_test(no_image),
        cmocka_unit_test(bf16_comes_as_close_as_the_reference_in_bf16),
        cmocka_unit_test(images_that_make_no_sense_are_refused),
        cmocka_unit_test(models_with_an_image_encoder_take_their_number_of_images),
        cmocka_unit_test(the_size_follows_from_the_image),
        cmocka_unit_test(the_size_is_that_of_the_reference),
        cmocka_unit_test(a_resumed_run_needs_its_image),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(memory_of_a_strip_is_predicted),
        cmocka_unit_test(ranks_must_have_the_same_image),
        cmocka_unit_test(the_small_model_moves_what_the_image_shows),
    };
    return cmocka_run_group_tests_name("image_video", tests, context_set_up, context_tear_down);
}
