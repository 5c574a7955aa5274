/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs compared with golden runs: latents after every step, and frames. Repeated runs have the same bits.
 * Memory. */
#include "support/compare.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/find_tensor.h"
#include "support/engine/golden_run.h"
#include "support/engine/pipeline_fixture.h"
#include "support/memory.h"
#include "support/temporary.h"
#include "wan/run/memory/run_memory.h"
#include "wan/run/pipeline.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest error of the latents over all steps. */
static double latents_error(const golden_run *run, const ith_tensor_file *dump)
{
    const ith_tensor *golden = ith_tensor_file_find(run->file, "latents");
    const ith_tensor *ours = ith_tensor_file_find(dump, "latents");
    assert_int_equal(ours->dims, 5);
    assert_int_equal(ours->bytes, golden->bytes);
    int64_t count = golden->bytes / 4 / golden->shape[0];
    double worst = 0;
    for (int64_t step = 0; step < golden->shape[0]; step++)
        worst = larger_error(worst, relative_l2((const float *)ours->data + step * count,
                                                (const float *)golden->data + step * count, count));
    return worst;
}

static void follows(const char *path)
{
    golden_run run;
    golden_run_open(context, path, &run);
    ith_tensor_file *dump = golden_generate(context, pipeline, 1, &run.options, NULL);
    double error = latents_error(&run, dump);
    printf("%s: largest error of the latents %.2e\n", path, error);
    assert_true(error <= 1e-3);
    ith_tensor_file_close(&dump);
    ith_tensor_file_close(&run.file);
}

static void latents_follow_unipc_on_the_official_grid(void **state)
{
    (void)state;
    follows("golden/shapes/denoise_unipc_official.safetensors");
}

static void latents_follow_euler(void **state)
{
    (void)state;
    follows("golden/shapes/denoise_euler_diffusers.safetensors");
}

static void latents_follow_dpm_solver(void **state)
{
    (void)state;
    follows("golden/shapes/denoise_dpmpp_official.safetensors");
}

/* Compares a run with this precision with the golden run: the largest error of the latents, the share of the numbers of
 * the frames that differ by more than 1, the PSNR, and the error of the last latents. */
static void compare_frames(ith_precision precision, double *worst, double *share_off, double *psnr, double *final_error)
{
    golden_run run;
    golden_run_open(context, "golden/shapes/denoise_unipc_diffusers.safetensors", &run);
    run.options.precision = precision;
    ith_tensor_file *dump = golden_generate(context, pipeline, 1, &run.options, NULL), *video = NULL;
    assert_int_equal(ith_tensor_file_open(context, "golden/shapes/video.safetensors", &video), ITH_OK);
    const ith_tensor *ours = ith_tensor_file_find(dump, "frames"), *golden = ith_tensor_file_find(video, "frames");
    assert_int_equal(ours->bytes, golden->bytes);
    int64_t off = 0;
    double squares = 0;
    for (int64_t i = 0; i < golden->bytes; i++) {
        int difference = ((const uint8_t *)ours->data)[i] - ((const uint8_t *)golden->data)[i];
        off += abs(difference) > 1;
        squares += difference * difference;
    }
    *worst = latents_error(&run, dump);
    *share_off = (double)off / (double)golden->bytes;
    *psnr = 10 * log10(255.0 * 255.0 * (double)golden->bytes / squares);
    *final_error = relative_l2(find_floats(dump, "final", NULL), find_floats(video, "latents", NULL),
                               ith_tensor_file_find(video, "latents")->bytes / 4);
    ith_tensor_file_close(&dump);
    ith_tensor_file_close(&video);
    ith_tensor_file_close(&run.file);
}

static void latents_and_frames_follow_unipc_on_the_diffusers_grid(void **state)
{
    (void)state;
    double worst, share_off, psnr, final_error;
    compare_frames(ITH_PRECISION_F32, &worst, &share_off, &psnr, &final_error);
    printf(
        "f32: largest error of the latents %.2e, %.2e of the values off by more than 1, %.1f dB, last latents %.2e\n",
        worst, share_off, psnr, final_error);
    assert_true(worst <= 1e-3);
    assert_true(share_off <= 1e-4);
}

/* diffusers in bf16 reaches 45.9 dB and an error of 2.5e-2. */
static void bf16_comes_as_close_as_the_reference_in_bf16(void **state)
{
    (void)state;
    double worst, share_off, psnr, final_error;
    compare_frames(ITH_PRECISION_BF16, &worst, &share_off, &psnr, &final_error);
    printf("bf16: %.1f dB, last latents %.2e\n", psnr, final_error);
    assert_true(psnr >= 45.9);
    assert_true(final_error <= 2.5e-2);
}

static ith_generate_options small_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a purple circle moving downwards, grey background";
    options.frames = 5, options.height = 48, options.width = 80, options.steps = 3;
    options.precision = ITH_PRECISION_F32, options.seed = 7;
    return options;
}

static void assert_same_dumps(const ith_tensor_file *first, const ith_tensor_file *second)
{
    for (int64_t i = 0; i < ith_tensor_file_count(first); i++) {
        const ith_tensor *a = ith_tensor_file_at(first, i), *b = ith_tensor_file_at(second, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, (size_t)a->bytes);
    }
}

/* Notes the memory that is held during denoising. */
static void note_memory(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)done, (void)total;
    if (stage == ITH_STAGE_DENOISE)
        *(int64_t *)user = memory_of(context).current_bytes;
}

/* keep_packed changes no bit of the result. */
static void kept_weights_change_nothing_but_memory(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ith_generate_options options = small_run();
        int64_t held[2] = {0};
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        ith_tensor_file *dumps[2];
        options.precision = bf16 ? ITH_PRECISION_BF16 : ITH_PRECISION_F32;
        options.on_progress = note_memory;
        for (int kept = 0; kept < 2; kept++) {
            options.keep_packed = kept, options.user = &held[kept];
            dumps[kept] = golden_generate(context, pipeline, 1, &options, &report);
        }
        assert_same_dumps(dumps[0], dumps[1]);
        ith_tensor_file_close(&dumps[0]);
        ith_tensor_file_close(&dumps[1]);
        assert_true(held[1] > held[0] + (4 << 20));
        assert_true(report.mapped_bytes > 4 << 20);
    }
}

static void the_same_bits_twice(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    ith_tensor_file *first = golden_generate(context, pipeline, 1, &options, NULL);
    ith_tensor_file *second = golden_generate(context, pipeline, 1, &options, NULL);
    assert_same_dumps(first, second);
    ith_tensor_file_close(&second);
    options.seed = 8;
    second = golden_generate(context, pipeline, 1, &options, NULL);
    assert_memory_not_equal(find_floats(first, "noise", NULL), find_floats(second, "noise", NULL), 64);
    ith_tensor_file_close(&first);
    ith_tensor_file_close(&second);
}

static char *wisdom_of(ith_context *c, const char *folder)
{
    check(c, ith_wisdom_save(c, temporary_path(folder, "wisdom")));
    return temporary_read(temporary_path(folder, "wisdom"), NULL);
}

/* A measurement could choose another kernel the next time, and so change the bits. So none is made. */
static void no_kernel_is_chosen_by_measurement(void **state)
{
    (void)state;
    ith_context *fresh = NULL;
    assert_int_equal(ith_context_create(NULL, &fresh), ITH_OK);
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a", options.frames = 1, options.height = options.width = 32, options.steps = 2;
    options.precision = ITH_PRECISION_F32;
    check(context, engine_generate(context, pipeline, 2, &options, NULL));
    char *folder = temporary_folder(), *before = wisdom_of(fresh, folder), *after = wisdom_of(context, folder);
    assert_string_equal(after, before);
    free(before), free(after);
    temporary_remove(folder);
    ith_context_destroy(&fresh);
}

static void expect_memory_predicted(int threads)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A red circle moves to the right on a black background.";
    options.frames = 17, options.height = 128, options.width = 128, options.steps = 1;
    options.precision = ITH_PRECISION_F32, options.threads = threads;
    ith_context *own = NULL;
    ith_pipeline *fresh = NULL;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    ith_context_create(NULL, &own);
    assert_int_equal(ith_pipeline_open(own, MODEL, &fresh), ITH_OK);
    assert_int_equal(ith_pipeline_generate(fresh, NULL, &options, &report), ITH_OK);
    double ratio = (double)report.predicted_bytes / (double)report.peak_bytes;
    if (ratio < 0.999 || ratio > 1.001)
        fail_msg("%d threads: predicted %.1f MB, held %.1f MB", threads, (double)report.predicted_bytes / 1e6,
                 (double)report.peak_bytes / 1e6);
    ith_pipeline_close(&fresh);
    assert_int_equal(memory_of(own).current_bytes, 0);
    ith_context_destroy(&own);
}

/* Some buffers exist once for each thread. */
static void memory_is_predicted(void **state)
{
    (void)state;
    expect_memory_predicted(1);
    expect_memory_predicted(7);
}

static void note_progress(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)stage, (void)done, (void)total;
    *(bool *)user = true;
}

static bool has_progress(void *user)
{
    return *(bool *)user;
}

/* A run that needs more memory than any machine has is refused at once, and the sentence names settings that fit. With
 * force the run begins, until it is stopped or has no memory for its noise. */
static void a_run_too_large_for_the_machine_is_refused_first(void **state)
{
    (void)state;
    bool begun = false;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    options.prompt = "a", options.frames = 4093, options.height = options.width = 8192, options.steps = 1;
    options.precision = ITH_PRECISION_F32;
    options.on_progress = note_progress, options.should_stop = has_progress, options.user = &begun;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, &report), ITH_ERR_MEMORY);
    printf("%s\n", ith_context_error(context));
    assert_non_null(strstr(ith_context_error(context), "at its peak"));
    assert_true(report.predicted_bytes > (int64_t)1 << 40);
    assert_false(begun);
    options.force = true;
    ith_status status = ith_pipeline_generate(pipeline, NULL, &options, NULL);
    assert_true(status == ITH_ERR_INTERRUPTED || status == ITH_ERR_MEMORY);
    assert_null(strstr(ith_context_error(context), "at its peak"));
    assert_true(begun);
}

/* On machines with less and less memory, the refusal names options that would fit. */
static void what_would_fit_is_named(void **state)
{
    (void)state;
    static const char *const words[] = {"do with cfg sequential;", "do with precision bf16, cfg sequential;",
                                        "do with precision bf16, cfg sequential, frames ",
                                        "do with precision bf16, cfg sequential, height "};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a", options.frames = 401, options.height = options.width = 128;
    options.precision = ITH_PRECISION_F32;
    check(context, ith_pipeline_resolve(pipeline, &options));
    int64_t whole = 0, sequential = 0, bf16 = 0, both = 0, seen = 0, expected = 8 | 4;
    check(context, ith_pipeline_predict(pipeline, &options, 1, 1, &whole));
    ith_generate_options in_turn = options, rounded = options;
    in_turn.cfg = ITH_CFG_SEQUENTIAL;
    check(context, ith_pipeline_predict(pipeline, &in_turn, 1, 1, &sequential));
    in_turn.precision = rounded.precision = ITH_PRECISION_BF16; /* saves little memory without bf16 instructions */
    check(context, ith_pipeline_predict(pipeline, &rounded, 1, 1, &bf16));
    check(context, ith_pipeline_predict(pipeline, &in_turn, 1, 1, &both));
    const ith_team alone = {.ranks = 1, .processes = 1, .hosts = 1, .count = 1, .shares_memory = true};
    options.shard_weights = 1; /* has no effect in one process */
    ith_memory_balance balance = {
        .bytes = whole, .host_bytes = whole, .machine = {{whole, "are free here"}, {INT64_MAX, "are known of"}}};
    const int64_t *free_bytes = &balance.machine.free.bytes;
    check(context, ith_check_memory(pipeline, context, &options, false, &alone, &balance));
    for (int percent = 99; percent > 0; percent--) {
        balance.machine.free.bytes = whole / 100 * percent;
        if (*free_bytes >= sequential)
            expected |= 1;
        else if (*free_bytes < bf16 && *free_bytes >= both)
            expected |= 2;
        assert_int_equal(ith_check_memory(pipeline, context, &options, false, &alone, &balance), ITH_ERR_MEMORY);
        assert_non_null(strstr(ith_context_error(context), "are free here"));
        assert_null(strstr(ith_context_error(context), "shard_weights"));
        for (int i = 0; i < 4; i++)
            if (strstr(ith_context_error(context), words[i]))
                seen |= 1 << i;
    }
    printf("%s\n", ith_context_error(context));
    assert_int_equal(seen, expected);
    int64_t short_run = 0, small_picture = 0; /* the least of all that are tried */
    char least[96];
    in_turn.frames = 1;
    check(context, ith_pipeline_predict(pipeline, &in_turn, 1, 1, &short_run));
    in_turn.frames = options.frames, in_turn.height = in_turn.width = 32;
    check(context, ith_pipeline_predict(pipeline, &in_turn, 1, 1, &small_picture));
    snprintf(least, sizeof least, "the least that other options would need is %.1f MB",
             (double)(short_run < small_picture ? short_run : small_picture) / 1e6);
    assert_non_null(strstr(ith_context_error(context), least));
    options.force = true;
    check(context, ith_check_memory(pipeline, context, &options, false, &alone, &balance));
}

/* Expects the refusal of a run that needs `lacking` bytes more than are free. Returns the end of the sentence, which
 * names options that fit; NULL: it names none. */
static const char *what_would_do(const ith_generate_options *options, const ith_team *team, int64_t lacking)
{
    int64_t bytes = 0;
    check(context, ith_predict(pipeline, context, options, false, team, &bytes));
    const ith_memory_balance balance = {
        .bytes = bytes, .host_bytes = bytes, .machine = {{bytes - lacking, "are free"}, {INT64_MAX, "are known of"}}};
    assert_int_equal(ith_check_memory(pipeline, context, options, false, team, &balance), ITH_ERR_MEMORY);
    return strstr(ith_context_error(context), "would do with ");
}

/* A resumed run has the precision, the frames and the size of the saved run: no advice changes them. */
static void a_resumed_run_keeps_its_options(void **state)
{
    (void)state;
    const ith_team alone = {.ranks = 1, .processes = 1, .hosts = 1, .count = 1, .shares_memory = true};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a", options.frames = 401, options.height = options.width = 128;
    options.precision = ITH_PRECISION_F32;
    check(context, ith_pipeline_resolve(pipeline, &options));
    options.resume_file = "saved.safetensors";
    assert_string_equal(what_would_do(&options, &alone, 1),
                        "would do with cfg sequential; force tries it all the same");
    assert_null(what_would_do(&options, &alone, (int64_t)1 << 40));
    assert_non_null(strstr(ith_context_error(context), "the least that other options would need is "));
    options.cfg = ITH_CFG_SEQUENTIAL;
    assert_null(what_would_do(&options, &alone, 1));
}

/* Packed weights and layers that are shared out are given up first. A model that rank 0 lends needs its layers shared
 * out. */
static void memory_of_weights_is_given_up_first(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    ith_team team = {.ranks = 2, .processes = 2, .hosts = 2, .host_processes = 1, .count = 1, .first_on_host = true};
    options.keep_packed = ITH_KEEP_ALL;
    check(context, ith_pipeline_resolve(pipeline, &options));
    const int64_t levels = pipeline->model->vae.levels;
    pipeline->model->vae.levels = 0; /* without frames the memory of weights is a part of the peak */
    assert_string_equal(what_would_do(&options, &team, 1),
                        "would do with keep_packed off; force tries it all the same");
    options.keep_packed = ITH_KEEP_AUTO, options.shard_weights = 1;
    assert_string_equal(what_would_do(&options, &team, 1),
                        "would do with shard_weights off; force tries it all the same");
    team.lends = true;
    const char *words = what_would_do(&options, &team, 1);
    assert_true(words && !strstr(words, "shard_weights"));
    pipeline->model->vae.levels = levels;
}

/* An option that the user has set stays, however little memory there is: the run is refused instead. */
static void packed_weights_that_were_asked_for_stay(void **state)
{
    (void)state;
    const ith_machine_memory none = {{0, "are free"}, {0, "are free"}};
    const ith_team alone = {
        .ranks = 1, .processes = 1, .hosts = 1, .host_processes = 1, .count = 1, .shares_memory = true};
    ith_generate_options options = small_run();
    int64_t bytes = 0;
    options.keep_packed = ITH_KEEP_ALL;
    check(context, ith_pipeline_resolve(pipeline, &options));
    check(context, ith_predict_settled(pipeline, context, &options, false, &alone, &none, &bytes));
    assert_int_equal(options.keep_packed, ITH_KEEP_ALL);
}

/* Two ranks in a process and one in another are two hosts for a prediction that knows no more, and share out
 * weights. */
static void an_uneven_number_of_ranks_makes_two_processes(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    int64_t alone = 0, shared = 0;
    const int64_t levels = pipeline->model->vae.levels;
    pipeline->model->vae.levels = 0; /* as above */
    check(context, ith_pipeline_predict(pipeline, &options, 3, 2, &alone));
    options.shard_weights = 1;
    check(context, ith_pipeline_predict(pipeline, &options, 3, 2, &shared));
    pipeline->model->vae.levels = levels;
    assert_true(shared > alone);
}

/* Latents that are only decoded have a size already. */
static void a_run_from_latents_keeps_its_size(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    const ith_team alone = {.ranks = 1, .processes = 1, .hosts = 1, .count = 1, .shares_memory = true};
    check(context, ith_pipeline_resolve(pipeline, &options));
    options.from_latents = "latents.safetensors", options.precision = ITH_PRECISION_BF16;
    assert_null(what_would_do(&options, &alone, 1));
    assert_non_null(strstr(ith_context_error(context), "the least that other options would need is "));
}

/* A picture that is as low as a picture can be becomes less wide, and the refusal names its size. */
static void a_less_wide_picture_is_named(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    options.frames = 1, options.height = 16, options.width = 4096;
    options.precision = ITH_PRECISION_BF16, options.cfg = ITH_CFG_SEQUENTIAL;
    check(context, ith_pipeline_resolve(pipeline, &options));
    const ith_team alone = {.ranks = 1, .processes = 1, .hosts = 1, .count = 1, .shares_memory = true};
    assert_string_equal(what_would_do(&options, &alone, 1),
                        "would do with height 16, width 3072; force tries it all the same");
}

/* Two processes of a host take twice the memory of one. The machine's memory is for both. */
static void processes_of_a_host_share_its_memory(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    options.frames = 401, options.height = options.width = 128, options.precision = ITH_PRECISION_F32;
    check(context, ith_pipeline_resolve(pipeline, &options));
    const ith_team two = {.ranks = 2, .processes = 2, .hosts = 1, .host_processes = 2, .count = 1};
    int64_t bytes = 0;
    check(context, ith_predict(pipeline, context, &options, false, &two, &bytes));
    const ith_memory_limit enough = {bytes * 2, "are free here"}, none = {INT64_MAX, "are known of"};
    ith_memory_balance balance = {.bytes = bytes, .host_bytes = bytes * 2, .machine = {enough, enough}};
    check(context, ith_check_memory(pipeline, context, &options, false, &two, &balance));
    balance.machine.free.bytes = balance.machine.shared.bytes = bytes * 2 - 1;
    assert_int_equal(ith_check_memory(pipeline, context, &options, false, &two, &balance), ITH_ERR_MEMORY);
    assert_non_null(strstr(ith_context_error(context), "the 2 processes of this host hold"));
    assert_non_null(strstr(ith_context_error(context), " in this process would do with cfg sequential"));
    /* Where half of the memory is there, each process has half of its need, and the same options fit as alone. */
    char words[256];
    const char *alone = what_would_do(&options, &two, bytes - bytes / 2);
    assert_non_null(alone);
    snprintf(words, sizeof words, "%s", alone);
    balance.machine.free = none, balance.machine.shared.bytes = bytes / 2 * 2;
    assert_int_equal(ith_check_memory(pipeline, context, &options, false, &two, &balance), ITH_ERR_MEMORY);
    assert_non_null(strstr(ith_context_error(context), words));
    balance.machine.free = enough;
    balance.machine.free.bytes = bytes * 2 - 1;
    balance.machine.shared = none; /* a limit of each process, large enough for one */
    check(context, ith_check_memory(pipeline, context, &options, false, &two, &balance));
    balance.machine.free.bytes = bytes - 1;
    assert_int_equal(ith_check_memory(pipeline, context, &options, false, &two, &balance), ITH_ERR_MEMORY);
    assert_non_null(strstr(ith_context_error(context), "this run holds"));
}

/* Stops a run when it has come to a part of a stage. */
typedef struct stopper {
    ith_stage stage;
    int64_t at, total; /* at: whole steps or frames */
    atomic_bool reached;
} stopper;

static void look_how_far(void *user, ith_stage stage, int64_t done, int64_t total)
{
    stopper *s = user;
    assert_true(done >= 0 && done <= total);
    if (stage == s->stage && done >= s->at * ITH_PROGRESS_UNIT)
        s->total = total, s->reached = true;
}

static bool stop_there(void *user)
{
    return ((stopper *)user)->reached;
}

static ith_status refuse_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)user, (void)rgb, (void)height, (void)width;
    return index == 3 ? ITH_ERR_IO : ITH_OK;
}

static void a_run_can_be_stopped(void **state)
{
    (void)state;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a", options.frames = 5, options.height = options.width = 32, options.steps = 4;
    options.precision = ITH_PRECISION_F32;
    options.on_progress = look_how_far, options.should_stop = stop_there;
    for (int ranks = 1; ranks < 4; ranks++) {
        stopper after_three = {.stage = ITH_STAGE_DENOISE, .at = 3};
        options.user = &after_three;
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        assert_int_equal(engine_generate(context, pipeline, ranks, &options, &report), ITH_ERR_INTERRUPTED);
        assert_int_equal(report.steps_done, 3);
        printf("%s\n", ith_context_error(context));
        assert_non_null(strstr(ith_context_error(context), "step 4 of 4"));
        assert_int_equal(after_three.total, 4 * ITH_PROGRESS_UNIT);
    }
    stopper after_a_frame = {.stage = ITH_STAGE_DECODE, .at = 1};
    options.user = &after_a_frame;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_INTERRUPTED);
    assert_non_null(strstr(ith_context_error(context), "frame 2 of 5"));
    options.on_progress = NULL, options.should_stop = NULL;
    options.on_frame = refuse_frame;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_IO);
}

static ith_generate_options short_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a", options.frames = 1, options.height = options.width = 32, options.steps = 4;
    options.precision = ITH_PRECISION_F32;
    return options;
}

/* A guidance of 1 or less has no negative branch: its number does not count. */
static void guidance_of_one_or_less_is_none(void **state)
{
    (void)state;
    static const double numbers[] = {1, 0.5, 0, -3};
    ith_tensor_file *runs[4];
    for (int i = 0; i < 4; i++) {
        ith_generate_options options = short_run();
        options.guidance[0] = options.guidance[1] = numbers[i];
        runs[i] = golden_generate(context, pipeline, 1, &options, NULL);
        assert_memory_equal(find_floats(runs[i], "final", NULL), find_floats(runs[0], "final", NULL), 16 * 4 * 4 * 4);
    }
    for (int i = 0; i < 4; i++)
        ith_tensor_file_close(&runs[i]);
}

/* An expert is opened when its first step comes, and stays for all of its steps. */
static void an_expert_is_opened_once(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "trace.json");
    ith_context *own = NULL;
    ith_pipeline *traced = NULL;
    ith_generate_options options = short_run();
    options.boundary = 0.9;
    check(context, ith_context_create(NULL, &own));
    check(own, ith_pipeline_open(own, "../models/shapes", &traced));
    check(own, ith_trace_start(own, 100000));
    check(own, ith_pipeline_generate(traced, NULL, &options, NULL));
    check(own, ith_trace_save(own, path));
    char *text = temporary_read(path, NULL);
    int opened = 0;
    for (const char *at = text; (at = strstr(at, "\"open transformer\"")); at++)
        opened++;
    assert_int_equal(opened, 2);
    free(text);
    ith_pipeline_close(&traced);
    ith_context_destroy(&own);
    temporary_remove(folder);
}

static void saved_latents_give_the_same_frames(void **state)
{
    (void)state;
    char *folder = temporary_folder(), path[512];
    snprintf(path, sizeof path, "%s/latents.safetensors", folder);
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a", options.frames = 5, options.height = options.width = 32, options.steps = 2;
    options.precision = ITH_PRECISION_F32, options.latents_file = path;
    ith_tensor_file *whole = golden_generate(context, pipeline, 1, &options, NULL), *saved = NULL;
    assert_int_equal(ith_tensor_file_open(context, path, &saved), ITH_OK);
    assert_memory_equal(find_floats(saved, "latents", NULL), find_floats(whole, "final", NULL), 16 * 2 * 4 * 4 * 4);
    assert_string_equal(ith_tensor_file_metadata(saved, "prompt"), "a");
    ith_tensor_file_close(&saved);
    ith_generate_options again = ITH_GENERATE_OPTIONS_INIT;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    again.from_latents = path, again.precision = ITH_PRECISION_F32;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &again, &report), ITH_OK);
    assert_false(report.latents_saved);
    assert_int_equal(report.frames_done, 5);
    assert_int_equal(report.steps_done, 0);
    ith_tensor_file_close(&whole);
    temporary_remove(folder);
}

/* Numbers that are not finite are refused: they would make meaningless frames without an error. */
static void latents_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    char *folder = temporary_folder(), path[512];
    snprintf(path, sizeof path, "%s/nan.safetensors", folder);
    float numbers[16 * 4 * 4] = {[77] = NAN};
    ith_tensor tensor = ITH_TENSOR_INIT;
    tensor.dtype = ITH_F32, tensor.dims = 4, tensor.data = numbers, tensor.bytes = sizeof numbers;
    tensor.shape[0] = 16, tensor.shape[1] = 1, tensor.shape[2] = tensor.shape[3] = 4;
    for (int noise = 0; noise < 2; noise++) {
        tensor.name = noise ? "noise" : "latents";
        assert_int_equal(ith_tensor_file_write(context, path, &tensor, 1, NULL, NULL, 0), ITH_OK);
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        if (noise) {
            options.noise_file = path, options.prompt = "a", options.frames = 1, options.steps = 1;
            options.height = options.width = 32;
        } else {
            options.from_latents = path;
        }
        assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), noise ? "nan.safetensors: noise holds numbers that are not"
                                                                 : "nan.safetensors: latents holds numbers that are"));
    }
    temporary_remove(folder);
}

/* Noise for other frames, another height or another width, and latents with and without all their steps. */
static void latents_of_another_run_are_refused(void **state)
{
    (void)state;
    enum { COUNT = 16 * 4 * 4 };
    char *folder = temporary_folder(), path[512];
    snprintf(path, sizeof path, "%s/other.safetensors", folder);
    const int64_t shapes[][3] = {{2, 4, 4}, {1, 8, 4}, {1, 4, 8}, {1, 4, 4}};
    float *numbers = calloc(2 * COUNT, sizeof *numbers);
    ith_tensor tensor = ITH_TENSOR_INIT;
    tensor.name = "noise", tensor.dtype = ITH_F32, tensor.dims = 4, tensor.data = numbers, tensor.shape[0] = 16;
    for (int i = 0; i < 4; i++) {
        memcpy(tensor.shape + 1, shapes[i], sizeof shapes[i]);
        tensor.bytes = (i < 3 ? 2 : 1) * COUNT * (int64_t)sizeof *numbers;
        assert_int_equal(ith_tensor_file_write(context, path, &tensor, 1, NULL, NULL, 0), ITH_OK);
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.noise_file = path, options.prompt = "a", options.frames = 1, options.steps = 1;
        options.height = options.width = 32;
        assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), i < 3 ? ITH_ERR_ARGUMENT : ITH_OK);
        if (i < 3)
            assert_non_null(strstr(ith_context_error(context), "this run's frames and size need [16, 1, 4, 4]"));
    }
    tensor.name = "latents";
    for (int step = 3; step <= 4; step++) { /* latents after step 3 or 4 of 4, as in a saved run */
        const char *const keys[] = {"step", "steps"}, *const values[] = {step < 4 ? "3" : "4", "4"};
        assert_int_equal(ith_tensor_file_write(context, path, &tensor, 1, keys, values, 2), ITH_OK);
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.from_latents = path;
        assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), step < 4 ? ITH_ERR_ARGUMENT : ITH_OK);
        if (step < 4)
            assert_non_null(strstr(ith_context_error(context), "saved at step 3 of 4"));
    }
    free(numbers);
    temporary_remove(folder);
}

/* A tensor of another type or another number of channels or dimensions, or without numbers, is neither noise nor
 * latents of this model. A file of noise may have any number of steps. */
static void tensors_that_are_no_latents_are_refused(void **state)
{
    (void)state;
    static const struct {
        ith_dtype type;
        int dims;
        int64_t shape[5];
        const char *words; /* NULL: the tensor is taken */
    } cases[] = {
        {ITH_F32, 3, {16, 4, 4}, "is wanted"},   {ITH_F32, 5, {16, 1, 4, 4, 1}, "is wanted"},
        {ITH_F32, 4, {8, 1, 4, 4}, "is wanted"}, {ITH_F32, 4, {17, 1, 4, 4}, "is wanted"},
        {ITH_U8, 4, {16, 1, 4, 4}, "is wanted"}, {ITH_F32, 4, {16, 0, 4, 4}, "is empty"},
        {ITH_F32, 4, {16, 1, 4, 0}, "is empty"}, {ITH_F32, 4, {16, 1, 4, 4}, NULL},
    };
    const char *const keys[] = {"step", "steps"}, *const values[] = {"1", "4"};
    char *folder = temporary_folder(), path[512];
    snprintf(path, sizeof path, "%s/tensor.safetensors", folder);
    float *numbers = calloc(17 * 4 * 4, sizeof *numbers);
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        const bool noise = i % 2, taken = !cases[i / 2].words;
        ith_tensor tensor = ITH_TENSOR_INIT;
        tensor.name = noise ? "noise" : "latents", tensor.data = numbers;
        tensor.dtype = cases[i / 2].type, tensor.dims = cases[i / 2].dims;
        memcpy(tensor.shape, cases[i / 2].shape, sizeof cases[i / 2].shape);
        tensor.bytes = tensor.dtype == ITH_F32 ? 4 : 1;
        for (int dim = 0; dim < tensor.dims; dim++)
            tensor.bytes *= tensor.shape[dim];
        check(context, ith_tensor_file_write(context, path, &tensor, 1, keys, values, noise ? 2 : 0));
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.frames = 1, options.height = options.width = 32, options.steps = 1;
        options.noise_file = noise ? path : NULL, options.from_latents = noise ? NULL : path;
        const ith_status status = ith_pipeline_generate(pipeline, NULL, &options, NULL);
        if (status != (taken ? ITH_OK : ITH_ERR_FORMAT))
            fail_msg("case %zu: %s", i, status ? ith_context_error(context) : "taken");
        if (!taken)
            assert_non_null(strstr(ith_context_error(context), cases[i / 2].words));
    }
    free(numbers);
    temporary_remove(folder);
}

/* With this noise the first layer of the transformer overflows. */
static void latents_that_become_not_finite_end_the_run(void **state)
{
    (void)state;
    char *folder = temporary_folder(), path[512];
    snprintf(path, sizeof path, "%s/huge.safetensors", folder);
    float numbers[16 * 4 * 4];
    for (int i = 0; i < 16 * 4 * 4; i++)
        numbers[i] = 3e38f;
    ith_tensor tensor = ITH_TENSOR_INIT;
    tensor.name = "noise", tensor.dtype = ITH_F32, tensor.dims = 4, tensor.data = numbers,
    tensor.bytes = sizeof numbers;
    tensor.shape[0] = 16, tensor.shape[1] = 1, tensor.shape[2] = tensor.shape[3] = 4;
    assert_int_equal(ith_tensor_file_write(context, path, &tensor, 1, NULL, NULL, 0), ITH_OK);
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.noise_file = path, options.prompt = "a", options.frames = 1, options.steps = 2;
    options.height = options.width = 32;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, &report), ITH_ERR_NUMERIC);
    assert_non_null(strstr(ith_context_error(context), "latents are not finite after step 1 of 2"));
    temporary_remove(folder);
}

typedef struct refusal {
    const char *words; /* must be in the sentence */
    int64_t frames, height, width, steps;
    double shift, guidance, boundary;
    int ranks;
    ith_cfg cfg;
} refusal;

static void wrong_options_are_refused_with_the_nearest(void **state)
{
    (void)state;
    const double n = NAN;
    const refusal refusals[] = {
        {"17 and 21", 18, 128, 128, 2, 3, n, n, 1, 0},
        {"nearest is 1", -4, 128, 128, 2, 3, n, n, 1, 0},
        {"112 and 128", 17, 120, 128, 2, 3, n, n, 1, 0},
        {"nearest is 16", 17, 128, 7, 2, 3, n, n, 1, 0},
        {"nearest is 16384", 17, 128, 1 << 20, 2, 3, n, n, 1, 0},
        {"steps", 17, 128, 128, -1, 3, n, n, 1, 0},
        {"shift", 17, 128, 128, 2, -3, n, n, 1, 0},
        {"guidance", 17, 128, 128, 2, 3, 1e9, n, 1, 0},
        {"boundary", 17, 128, 128, 2, 3, n, 2, 1, 0},
        {"4 ranks would do", 17, 128, 128, 2, 3, n, n, 3, ITH_CFG_PARALLEL},
        {"cfg is 9", 17, 128, 128, 2, 3, n, n, 1, (ith_cfg)9},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
        options.prompt = "a", options.frames = r->frames, options.height = r->height, options.width = r->width;
        options.steps = r->steps, options.shift = r->shift, options.guidance[0] = r->guidance;
        options.boundary = r->boundary, options.cfg = r->cfg;
        assert_int_equal(engine_generate(context, pipeline, r->ranks, &options, NULL), ITH_ERR_ARGUMENT);
        if (!strstr(ith_context_error(context), r->words))
            fail_msg("\"%s\" lacks \"%s\"", ith_context_error(context), r->words);
    }
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_ARGUMENT);
    options.prompt = "caf\xe9";
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "UTF-8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_follow_unipc_on_the_official_grid),
        cmocka_unit_test(latents_follow_euler),
        cmocka_unit_test(latents_follow_dpm_solver),
        cmocka_unit_test(latents_and_frames_follow_unipc_on_the_diffusers_grid),
        cmocka_unit_test(bf16_comes_as_close_as_the_reference_in_bf16),
        cmocka_unit_test(the_same_bits_twice),
        cmocka_unit_test(kept_weights_change_nothing_but_memory),
        cmocka_unit_test(no_kernel_is_chosen_by_measurement),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(processes_of_a_host_share_its_memory),
        cmocka_unit_test(a_run_too_large_for_the_machine_is_refused_first),
        cmocka_unit_test(what_would_fit_is_named),
        cmocka_unit_test(a_resumed_run_keeps_its_options),
        cmocka_unit_test(a_less_wide_picture_is_named),
        cmocka_unit_test(memory_of_weights_is_given_up_first),
        cmocka_unit_test(a_run_from_latents_keeps_its_size),
        cmocka_unit_test(an_uneven_number_of_ranks_makes_two_processes),
        cmocka_unit_test(packed_weights_that_were_asked_for_stay),
        cmocka_unit_test(a_run_can_be_stopped),
        cmocka_unit_test(guidance_of_one_or_less_is_none),
        cmocka_unit_test(an_expert_is_opened_once),
        cmocka_unit_test(saved_latents_give_the_same_frames),
        cmocka_unit_test(latents_that_are_not_finite_are_refused),
        cmocka_unit_test(latents_of_another_run_are_refused),
        cmocka_unit_test(tensors_that_are_no_latents_are_refused),
        cmocka_unit_test(latents_that_become_not_finite_end_the_run),
        cmocka_unit_test(wrong_options_are_refused_with_the_nearest),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
