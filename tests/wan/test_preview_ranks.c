/* SPDX-License-Identifier: Apache-2.0 */
/* Previews of a run come after the right steps, resemble the video, and are the same on any number of ranks. */
#include "support/engine/engine_ranks.h"
#include "support/engine/pipeline_fixture.h"
#include "support/engine/repackage.h"
#include "support/temporary.h"
#include "wan/dit/dit.h"
#include "wan/run/preview.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 64
#define LATENTS (SIDE / 8)
#define FRAMES 17 /* five latent frames, of which three are shown */
#define PREVIEW_BYTES (LATENTS * 3 * LATENTS * 3)

typedef struct seen {
    int64_t steps[16], count;
    uint8_t preview[PREVIEW_BYTES]; /* the last preview */
    double colours[PREVIEW_BYTES];  /* the mean colours of the video's frames at the latent frames of the preview */
    ith_status answer;
} seen;

static ith_status take_preview(void *user, int64_t step, const uint8_t *rgb, int64_t height, int64_t width)
{
    seen *s = user;
    assert_int_equal(height, LATENTS);
    assert_int_equal(width, 3 * LATENTS);
    s->steps[s->count++] = step;
    memcpy(s->preview, rgb, PREVIEW_BYTES);
    return s->answer;
}

static ith_status take_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    seen *s = user;
    const int64_t latent = (index + 3) / 4, part = latent / 2;
    if (latent % 2)
        return ITH_OK;
    for (int64_t i = 0; i < height * width * 3; i++) {
        const int64_t y = i / 3 / width / 8, x = i / 3 % width / 8 + part * LATENTS;
        s->colours[(y * 3 * LATENTS + x) * 3 + i % 3] += rgb[i] / (64.0 * (part ? 4 : 1));
    }
    return ITH_OK;
}

static ith_generate_options preview_run(seen *s)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A red circle moves to the right on a black background.", options.negative = "";
    options.frames = FRAMES, options.height = options.width = SIDE, options.steps = 16, options.seed = 3;
    options.shift = 3, options.guidance[0] = 4, options.guidance[1] = 3;
    options.precision = ITH_PRECISION_F32;
    options.on_preview = take_preview, options.preview_every = 6, options.on_frame = take_frame, options.user = s;
    return options;
}

/* The correlation coefficient of the colours of the preview and of the video. */
static double correlation(const uint8_t *preview, const double *colours)
{
    double sum[2] = {0}, square[2] = {0}, product = 0;
    const double n = PREVIEW_BYTES;
    for (int64_t i = 0; i < PREVIEW_BYTES; i++) {
        sum[0] += preview[i], square[0] += preview[i] * preview[i];
        sum[1] += colours[i], square[1] += colours[i] * colours[i];
        product += preview[i] * colours[i];
    }
    return (product - sum[0] * sum[1] / n) /
           sqrt((square[0] - sum[0] * sum[0] / n) * (square[1] - sum[1] * sum[1] / n));
}

static void previews_resemble_the_video(void **state)
{
    (void)state;
    for (int solver = ITH_SOLVER_UNIPC; solver <= ITH_SOLVER_DPMPP; solver++) {
        seen s = {.count = 0};
        ith_generate_options options = preview_run(&s);
        options.solver = (ith_solver)solver;
        check(context, engine_generate(context, pipeline, 1, &options, NULL));
        assert_int_equal(s.count, 3);
        assert_int_equal(s.steps[0], 6);
        assert_int_equal(s.steps[1], 12);
        assert_int_equal(s.steps[2], 16);
        const double alike = correlation(s.preview, s.colours);
        printf("solver %d: the correlation of preview and video is %.2f\n", solver, alike);
        assert_true(alike > 0.75);
    }
}

static void ranks_show_the_same(void **state)
{
    (void)state;
    seen one = {.count = 0}, three = {.count = 0};
    ith_generate_options options = preview_run(&one);
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    options.steps = 4, options.preview_every = 3;
    check(context, engine_generate(context, pipeline, 1, &options, NULL));
    attention.strategy = ITH_STRATEGY_ULYSSES;
    options.attention = &attention, options.user = &three;
    check(context, engine_generate(context, pipeline, 3, &options, NULL));
    assert_int_equal(one.count, 2);
    assert_int_equal(three.count, one.count);
    assert_memory_equal(three.preview, one.preview, PREVIEW_BYTES);
}

/* Writes the autoencoder of the small model without its encoder into the test's folder. */
static void write_decoder(const char *path)
{
    package *p = calloc(1, sizeof *p);
    int64_t kept = 0;
    assert_non_null(p);
    package_add(p, MODEL "/vae", name_as_is, "", ITH_DTYPE_NONE);
    for (int64_t i = 0; i < p->count; i++)
        if (strncmp(p->tensors[i].name, "encoder.", 8) != 0 && strncmp(p->tensors[i].name, "quant_conv.", 11) != 0)
            p->tensors[kept++] = p->tensors[i];
    assert_true(kept < p->count);
    p->count = kept;
    package_write(p, path, 0, 1);
    package_free(p);
}

/* If the files have no encoder, the map from latents to colours is fitted to random latents that the decoder
 * decodes. */
static void a_decoder_is_enough(void **state)
{
    (void)state;
    seen s = {.count = 0};
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_pipeline *decodes = NULL;
    char *folder = temporary_folder(), path[256], config[256];
    size_t bytes = 0;
    char *text = temporary_read(MODEL "/vae/config.json", &bytes);
    snprintf(path, sizeof path, "%s", temporary_path(folder, "vae.safetensors"));
    snprintf(config, sizeof config, "%s", temporary_path(folder, "config.json"));
    temporary_write(config, text, bytes);
    free(text);
    write_decoder(path);
    files.folder = MODEL, files.vae = path;
    check(context, ith_pipeline_open_files(context, &files, &decodes));
    ith_generate_options options = preview_run(&s);
    check(context, engine_generate(context, decodes, 1, &options, NULL));
    assert_int_equal(s.count, 3);
    const double alike = correlation(s.preview, s.colours);
    printf("without an encoder the correlation of preview and video is %.2f\n", alike);
    assert_true(alike > 0.6);
    ith_pipeline_close(&decodes);
    temporary_remove(folder);
}

#define IMAGE_SIDE 64
#define IMAGE_LATENTS (IMAGE_SIDE / 16)
#define IMAGE_FRAMES 3

/* The previews of a run of 3 steps, which show the latent frames side by side. */
typedef struct image_previews {
    uint8_t whole[3][IMAGE_LATENTS * IMAGE_FRAMES * IMAGE_LATENTS * 3];
    uint8_t first[3][IMAGE_LATENTS * IMAGE_LATENTS * 3]; /* the first latent frame of each preview */
    int64_t count;
} image_previews;

static ith_status take_image_preview(void *user, int64_t step, const uint8_t *rgb, int64_t height, int64_t width)
{
    image_previews *p = user;
    (void)step;
    assert_int_equal(height, IMAGE_LATENTS);
    assert_int_equal(width, IMAGE_FRAMES * IMAGE_LATENTS);
    memcpy(p->whole[p->count], rgb, sizeof p->whole[0]);
    for (int64_t row = 0; row < height; row++)
        memcpy(p->first[p->count] + row * IMAGE_LATENTS * 3, rgb + row * width * 3, IMAGE_LATENTS * 3);
    p->count++;
    return ITH_OK;
}

/* The latents of a TI2V model's image are known from the first step on. All frames of a preview are the same however
 * ranks share out the work. */
static void an_image_is_in_every_preview(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        ith_cfg cfg;
    } ways[] = {{1, ITH_CFG_BATCH}, {2, ITH_CFG_PARALLEL}, {2, ITH_CFG_BATCH}, {3, ITH_CFG_SEQUENTIAL}};
    enum { WAYS = sizeof ways / sizeof *ways };
    static uint8_t pixels[IMAGE_SIDE * IMAGE_SIDE * 3];
    for (int64_t i = 0; i < IMAGE_SIDE * IMAGE_SIDE * 3; i++)
        pixels[i] = (uint8_t)(i / 3 % IMAGE_SIDE < IMAGE_SIDE / 2 ? 230 : 20);
    const ith_image image = {sizeof image, pixels, IMAGE_SIDE, IMAGE_SIDE};
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    ith_pipeline *from_image = NULL;
    check(context, ith_pipeline_open(context, "golden/ti2v/model", &from_image));
    image_previews all[2][WAYS] = {0}; /* [solver] */
    attention.strategy = ITH_STRATEGY_ULYSSES;
    for (int run = 0; run < 2 * WAYS; run++) {
        image_previews *p = &all[run / WAYS][run % WAYS];
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.frames = 9, options.height = options.width = IMAGE_SIDE, options.steps = 3;
        options.solver = run / WAYS ? ITH_SOLVER_EULER : ITH_SOLVER_UNIPC;
        options.cfg = ways[run % WAYS].cfg, options.precision = ITH_PRECISION_F32, options.attention = &attention;
        options.image = &image, options.on_preview = take_image_preview, options.preview_every = 1, options.user = p;
        check(context, engine_generate(context, from_image, ways[run % WAYS].ranks, &options, NULL));
        assert_int_equal(p->count, 3);
        assert_memory_equal(p->whole, all[run / WAYS][0].whole, sizeof p->whole);
        for (int step = 0; step < 3; step++)
            assert_memory_equal(p->first[step], all[0][0].first[0], sizeof p->first[0]);
    }
    ith_pipeline_close(&from_image);
}

static void a_callback_may_end_the_run(void **state)
{
    (void)state;
    seen s = {.answer = ITH_ERR_IO};
    ith_generate_options options = preview_run(&s);
    assert_int_equal(engine_generate(context, pipeline, 2, &options, NULL), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "on_preview returned ITH_ERR_IO for step 6"));
    for (int ranks = 1; ranks <= 2; ranks++) {
        s.answer = (ith_status)7;
        assert_int_equal(engine_generate(context, pipeline, ranks, &options, NULL), ITH_ERR_ABORTED);
        assert_non_null(strstr(ith_context_error(context), "on_preview returned 7 for step 6, which is no ith_status"));
    }
    options.preview_every = -1;
    assert_int_equal(engine_generate(context, pipeline, 1, &options, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "preview_every is -1"));
}

static ith_status pass_by(void *user, int64_t step, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)user, (void)step, (void)rgb, (void)height, (void)width;
    return ITH_OK;
}

static void check_memory(int64_t frames, int64_t side)
{
    seen s = {.count = 0};
    ith_generate_options options = preview_run(&s);
    options.frames = frames, options.height = options.width = side, options.steps = 2;
    options.on_preview = pass_by, options.preview_every = 1, options.on_frame = NULL;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    ith_context *own = NULL;
    ith_pipeline *fresh = NULL;
    check(own, ith_context_create(NULL, &own));
    check(own, ith_pipeline_open(own, MODEL, &fresh));
    check(own, ith_pipeline_generate(fresh, NULL, &options, &report));
    const double ratio = (double)report.predicted_bytes / (double)report.peak_bytes;
    if (ratio < 0.95 || ratio > 1.05)
        fail_msg("side %lld: predicted %lld bytes, held %lld", (long long)side, (long long)report.predicted_bytes,
                 (long long)report.peak_bytes);
    ith_pipeline_close(&fresh);
    ith_context_destroy(&own);
}

/* Each pixel shows its own latent: four of them lie in one token. */
static void pixels_lie_where_their_latents_do(void **state)
{
    enum { HEIGHT = 4, WIDTH = 6, NUMBERS = HEIGHT * WIDTH };
    (void)state;
    const ith_latent_size size = {1, 1, HEIGHT, WIDTH};
    const ith_dit_shape shape = {.batch = 1, .frames = 1, .height = HEIGHT, .width = WIDTH};
    const float map[6][2] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}};
    float latents[NUMBERS], tokens[NUMBERS];
    uint8_t rgb[NUMBERS * 3];
    for (int i = 0; i < NUMBERS; i++)
        latents[i] = (float)i / 12 - 1;
    ith_dit_patchify(latents, 1, &shape, 0, NUMBERS / 4, tokens);
    ith_preview_draw(map[0], &size, tokens, rgb);
    for (int i = 0; i < NUMBERS * 3; i++)
        assert_true(abs(rgb[i] - i / 3 * 255 / 24) <= 1);
}

/* Large frames outweigh the memory that is not predicted. The picture from which previews are fitted outweighs a
 * smaller frame. */
static void memory_is_predicted(void **state)
{
    (void)state;
    check_memory(FRAMES, 2 * SIDE);
    check_memory(1, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_lie_where_their_latents_do),
        cmocka_unit_test(previews_resemble_the_video),
        cmocka_unit_test(ranks_show_the_same),
        cmocka_unit_test(a_decoder_is_enough),
        cmocka_unit_test(an_image_is_in_every_preview),
        cmocka_unit_test(a_callback_may_end_the_run),
        cmocka_unit_test(memory_is_predicted),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
