/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs whose transformer computes on a device: the golden runs on one rank and on several, the two guidance
 * branches in every way, precision, predicted memory, interruption. The device is the fake one (gpu/fake), unless
 * ITHACA_TEST_DEVICE names another, such as cuda:0. ITHACA_GOLDEN_RUNS=all: one golden run on the fake one too. */
#include "device/device_fixture.h"
#include "support/compare.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/find_tensor.h"
#include "support/engine/golden_run.h"
#include "support/engine/pipeline_fixture.h"
#include "support/refused.h"
#include "wan/run/memory/run_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *device = "fake:0";
static bool is_fake = true;

/* Opens the checkpoint with a context that uses the device. */
static int device_set_up(void **state)
{
    if (context_set_up(state))
        return 1;
    ith_status status = ith_context_use_device(context, device);
    if (!status)
        status = ith_pipeline_open(context, MODEL, &pipeline);
    if (status)
        print_error("%s\n", ith_context_error(context));
    return status;
}

static double worst_step(const ith_tensor_file *dump, const ith_tensor_file *golden_file)
{
    const ith_tensor *golden = ith_tensor_file_find(golden_file, "latents");
    const ith_tensor *ours = ith_tensor_file_find(dump, "latents");
    assert_int_equal(ours->bytes, golden->bytes);
    const int64_t count = golden->bytes / 4 / golden->shape[0];
    double worst = 0;
    for (int64_t step = 0; step < golden->shape[0]; step++)
        worst = larger_error(worst, relative_l2((const float *)ours->data + step * count,
                                                (const float *)golden->data + step * count, count));
    return worst;
}

/* The PSNR of the frames of a run beside the golden frames. */
static double psnr_of(const ith_tensor_file *dump)
{
    ith_tensor_file *video = NULL;
    assert_int_equal(ith_tensor_file_open(context, "golden/shapes/video.safetensors", &video), ITH_OK);
    const ith_tensor *ours = ith_tensor_file_find(dump, "frames"), *golden = ith_tensor_file_find(video, "frames");
    assert_int_equal(ours->bytes, golden->bytes);
    double squares = 0;
    for (int64_t i = 0; i < golden->bytes; i++) {
        const double difference = ((const uint8_t *)ours->data)[i] - ((const uint8_t *)golden->data)[i];
        squares += difference * difference;
    }
    const double psnr = 10 * log10(255.0 * 255.0 * (double)golden->bytes / squares);
    ith_tensor_file_close(&video);
    return psnr;
}

/* Repeats a golden run. Compares the latents and, if the file has them, the frames. */
static void follow(const char *path, int ranks, ith_precision precision, ith_cfg cfg)
{
    golden_run run;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    golden_run_open(context, path, &run);
    run.options.precision = precision, run.options.cfg = cfg;
    ith_tensor_file *dump = golden_generate(context, pipeline, ranks, &run.options, &report);
    const double error = worst_step(dump, run.file);
    printf("%s, %s, cfg %s, %d ranks: largest error of the latents %.2e", path + sizeof "golden/shapes/" - 1,
           ith_precision_name(precision), ith_cfg_name(cfg), ranks, error);
    double psnr = 99;
    if (strstr(path, "denoise_unipc_diffusers"))
        printf(", frames %.1f dB", psnr = psnr_of(dump));
    printf("; denoising %.2f s, %.1f MB predicted on the device; %s\n", report.denoise_seconds,
           1e-6 * (double)report.predicted_device_bytes, report.plan);
    assert_true(error <= (precision == ITH_PRECISION_F32 ? 1e-3 : 5e-2));
    assert_true(psnr >= (precision == ITH_PRECISION_F32 ? 50 : 30));
    assert_true(report.predicted_device_bytes > 0 && strstr(report.plan, device));
    ith_tensor_file_close(&dump);
    ith_tensor_file_close(&run.file);
}

static void golden_runs_are_followed(void **state)
{
    (void)state;
    static const char *const paths[] = {"golden/shapes/denoise_unipc_diffusers.safetensors",
                                        "golden/shapes/denoise_unipc_official.safetensors",
                                        "golden/shapes/denoise_euler_diffusers.safetensors"};
    const bool goes_far = !is_fake || getenv("ITHACA_GOLDEN_RUNS"); /* a golden run takes long on the fake device */
    if (goes_far)
        follow(paths[is_fake ? 2 : 0], 1, ITH_PRECISION_BF16, ITH_CFG_SEQUENTIAL);
    if (is_fake)
        return;
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int i = 0; i < 3; i++)
            follow(paths[i], ranks, ITH_PRECISION_F32, ITH_CFG_BATCH);
    follow(paths[0], 2, ITH_PRECISION_BF16, ITH_CFG_BATCH);
    follow(paths[0], 4, ITH_PRECISION_BF16, ITH_CFG_BATCH);
    follow(paths[0], 4, ITH_PRECISION_F32, ITH_CFG_PARALLEL);
    follow(paths[0], 1, ITH_PRECISION_F32, ITH_CFG_SEQUENTIAL);
}

static ith_generate_options small_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a purple circle moving downwards, grey background";
    options.frames = 5, options.height = 16, options.width = 80, options.steps = 3; /* ten tokens */
    options.precision = ITH_PRECISION_F32, options.seed = 7;
    return options;
}

/* A run on the device is close to the same run on the processor, which uses another context. */
static void the_processor_gives_the_same(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        ith_cfg cfg;
        ith_strategy strategy;
        ith_precision precision;
    } ways[] = {{1, ITH_CFG_BATCH, ITH_STRATEGY_AUTO, ITH_PRECISION_F32},
                {1, ITH_CFG_SEQUENTIAL, ITH_STRATEGY_AUTO, ITH_PRECISION_F32},
                {1, ITH_CFG_SEQUENTIAL, ITH_STRATEGY_AUTO, ITH_PRECISION_BF16},
                {2, ITH_CFG_PARALLEL, ITH_STRATEGY_AUTO, ITH_PRECISION_F32},
                {3, ITH_CFG_BATCH, ITH_STRATEGY_RING, ITH_PRECISION_F32},
                {4, ITH_CFG_PARALLEL, ITH_STRATEGY_AUTO, ITH_PRECISION_F32},
                {4, ITH_CFG_BATCH, ITH_STRATEGY_ULYSSES_RING, ITH_PRECISION_F32},
                {4, ITH_CFG_BATCH, ITH_STRATEGY_ULYSSES_RING, ITH_PRECISION_BF16},
                {6, ITH_CFG_BATCH, ITH_STRATEGY_ULYSSES, ITH_PRECISION_F32}};
    ith_context *own = NULL;
    ith_pipeline *plain = NULL;
    ith_generate_options options = small_run();
    check(context, ith_context_create(NULL, &own));
    check(own, ith_pipeline_open(own, MODEL, &plain));
    ith_tensor_file *want = golden_generate(own, plain, 1, &options, NULL);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
        attention.strategy = ways[i].strategy;
        options.attention = &attention, options.cfg = ways[i].cfg;
        options.precision = ways[i].precision;
        ith_tensor_file *dump = golden_generate(context, pipeline, ways[i].ranks, &options, NULL);
        const double error = worst_step(dump, want);
        printf("%d ranks, cfg %s, %s, %s: %.2e from the processor's latents in f32\n", ways[i].ranks,
               ith_cfg_name(ways[i].cfg), ith_strategy_name(ways[i].strategy), ith_precision_name(ways[i].precision),
               error);
        assert_true(error <= (ways[i].precision == ITH_PRECISION_F32 ? 1e-4 : 5e-2));
        ith_tensor_file_close(&dump);
    }
    ith_tensor_file_close(&want);
    ith_pipeline_close(&plain);
    ith_context_destroy(&own);
}

static void auto_precision_is_bf16(void **state)
{
    (void)state;
    char text[160];
    ith_generate_options options = small_run();
    options.precision = ITH_PRECISION_AUTO;
    check(context, ith_pipeline_resolve(pipeline, &options));
    assert_int_equal(options.precision, ITH_PRECISION_BF16);
    ith_precision_describe(context, ITH_PRECISION_AUTO, text, sizeof text);
    assert_non_null(strstr(text, "computes on a device"));
}

static void memory_of_the_device_is_predicted(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    int64_t few = 0, many = 0;
    options.frames = 401; /* the transformer then needs more than the decoder */
    check(context, ith_pipeline_predict_device(pipeline, &options, 1, 1, &few));
    check(context, ith_pipeline_predict_device(pipeline, &options, 4, 4, &many));
    assert_true(few > 0 && many > few);
    if (!is_fake) /* a GPU has room for the run below */
        return;
    options.height = options.width = 1008;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_MEMORY);
    printf("%s\n", ith_context_error(context));
    assert_non_null(strstr(ith_context_error(context), "this run needs "));
    assert_non_null(strstr(ith_context_error(context), device));
}

/* A run that may take less of the device than its weights need streams layers, and gives the same bits. */
static void less_memory_changes_no_bit(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    ith_generate_report whole = ITH_GENERATE_REPORT_INIT, report = ITH_GENERATE_REPORT_INIT;
    int64_t all = 0, less = 0, host = 0, host_less = 0;
    options.frames = 1, options.height = 16, options.width = 16; /* the decoder needs less than the transformer */
    check(context, ith_pipeline_predict_device(pipeline, &options, 2, 2, &all));
    check(context, ith_pipeline_predict(pipeline, &options, 2, 2, &host));
    ith_tensor_file *want = golden_generate(context, pipeline, 2, &options, &whole);
    assert_int_equal(whole.streamed_layers, 0);
    for (int hundredths = 99; hundredths >= 90; hundredths -= 3) {
        options.device_memory = all * hundredths / 100;
        check(context, ith_pipeline_predict_device(pipeline, &options, 2, 2, &less));
        check(context, ith_pipeline_predict(pipeline, &options, 2, 2, &host_less));
        ith_tensor_file *dump = golden_generate(context, pipeline, 2, &options, &report);
        printf("%.1f MB of %.1f MB: %d layers streamed, host %.1f instead of %.1f MB\n",
               1e-6 * (double)options.device_memory, 1e-6 * (double)all, (int)report.streamed_layers,
               1e-6 * (double)host_less, 1e-6 * (double)host);
        assert_true(report.streamed_layers > 0 && less <= options.device_memory && host_less > host);
        const ith_tensor *ours = ith_tensor_file_find(dump, "final"), *theirs = ith_tensor_file_find(want, "final");
        assert_memory_equal(ours->data, theirs->data, (size_t)theirs->bytes);
        ith_tensor_file_close(&dump);
    }
    options.device_memory = all / 20;
    assert_int_equal(engine_generate(context, pipeline, 2, &options, NULL), ITH_ERR_MEMORY);
    printf("%s\n", ith_context_error(context));
    assert_non_null(strstr(ith_context_error(context), "this run needs at least "));
    options.device_memory = -1;
    assert_int_equal(engine_generate(context, pipeline, 2, &options, NULL), ITH_ERR_ARGUMENT);
    ith_tensor_file_close(&want);
}

/* The refusal of a run that the device has no memory for names only options that the run can change. */
static void options_that_need_less_are_named(void **state)
{
    (void)state;
    const ith_team alone = {.ranks = 1, .processes = 1, .hosts = 1, .count = 1, .shares_memory = true};
    const ith_memory_balance enough = {.machine = {{INT64_MAX, "are free"}, {INT64_MAX, "are known of"}}};
    ith_generate_options options = small_run();
    check(context, ith_pipeline_resolve(pipeline, &options));
    options.device_memory = 1;
    REFUSED_AS(ITH_ERR_MEMORY, context,
               ": cfg sequential, precision bf16, fewer frames or a smaller picture need less;",
               ith_check_memory(pipeline, context, &options, false, &alone, &enough));
    options.resume_file = "saved.safetensors";
    REFUSED_AS(ITH_ERR_MEMORY, context, "B: cfg sequential needs less; force",
               ith_check_memory(pipeline, context, &options, false, &alone, &enough));
    REFUSED_AS(ITH_ERR_MEMORY, context, "B; force tries it all the same",
               ith_check_memory(pipeline, context, &options, true, &alone, &enough));
    options.resume_file = NULL, options.from_latents = "latents.safetensors", options.precision = ITH_PRECISION_F32;
    REFUSED_AS(ITH_ERR_MEMORY, context, "B: precision bf16 needs less; force",
               ith_check_memory(pipeline, context, &options, false, &alone, &enough));
}

static bool stop_at_once(void *user)
{
    return ++*(int *)user > 12;
}

/* A run that is stopped frees what it had on the device, and another one follows. */
static void a_run_is_stopped(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    int asked = 0;
    options.steps = 500, options.should_stop = stop_at_once, options.user = &asked;
    assert_int_equal(engine_generate(context, pipeline, 2, &options, NULL), ITH_ERR_INTERRUPTED);
    options = small_run();
    check(context, engine_generate(context, pipeline, 2, &options, NULL));
}

static void the_context_stays_as_it_was(void **state)
{
    (void)state;
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    check(context, ith_device_describe(context, &info));
    assert_string_equal(info.name, device);
}

int main(void)
{
    const char *named = getenv("ITHACA_TEST_DEVICE");
    if (named) {
        device_require();
        device = named, is_fake = false;
    } else
        setenv("ITHACA_PLUGIN_PATH", DEVICES, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_precision_is_bf16),
        cmocka_unit_test(memory_of_the_device_is_predicted),
        cmocka_unit_test(less_memory_changes_no_bit),
        cmocka_unit_test(options_that_need_less_are_named),
        cmocka_unit_test(the_processor_gives_the_same),
        cmocka_unit_test(golden_runs_are_followed),
        cmocka_unit_test(a_run_is_stopped),
        cmocka_unit_test(the_context_stays_as_it_was),
    };
    return cmocka_run_group_tests_name("pipeline_device", tests, device_set_up, pipeline_tear_down);
}
