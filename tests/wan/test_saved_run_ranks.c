/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are saved, end, and go on from their file give the bits of a run in one piece: after any step, on another
 * number of ranks, with every solver. Models and options that do not fit the file are refused by name. */
#include "support/compare.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/stopped_run.h"
#include "support/engine/tiny_model.h"
#include "support/folder_fixture.h"
#include "support/other_locale.h"
#include "wan/run/saved_run.h"

#include <ithaca/files.h>

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STEPS 5

static char model[256], altered[256]; /* altered: a changed copy of the saved run */
static ith_pipeline *pipeline;
static stopped_run run;

static int set_up(void **state)
{
    const int failed = folder_set_up(state);
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(altered, sizeof altered, "%s/altered.safetensors", folder);
    mkdir(model, 0700);
    tiny_model_write(context, TINY_TEXT, model);
    check(context, ith_pipeline_open(context, model, &pipeline));
    stopped_run_begin(&run, pipeline, folder);
    return failed;
}

static int tear_down(void **state)
{
    ith_pipeline_close(&pipeline);
    return folder_tear_down(state);
}

/* Options for two latent frames of 3 x 2 tokens, with both experts. */
static ith_generate_options small_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A green square moves upwards on a black background.";
    options.negative = "a red square";
    options.frames = 5, options.height = 48, options.width = 32, options.steps = STEPS;
    options.shift = 3, options.guidance[0] = 4, options.guidance[1] = 3;
    options.precision = ITH_PRECISION_F32, options.seed = 3;
    return options;
}

static void after_any_step(void **state)
{
    (void)state;
    const ith_generate_options again = stopped_run_options(&run);
    for (int solver = ITH_SOLVER_UNIPC; solver <= ITH_SOLVER_DPMPP; solver++) {
        ith_generate_options options = small_run();
        options.solver = (ith_solver)solver;
        stopped_run_check_steps(&run, &options, &again, 3);
    }
}

static void on_another_number_of_ranks(void **state)
{
    (void)state;
    static const rank_change changes[] = {
        {1, 3, ITH_STRATEGY_ULYSSES, {ITH_CFG_BATCH, ITH_CFG_BATCH}},
        {3, 1, ITH_STRATEGY_ULYSSES, {ITH_CFG_BATCH, ITH_CFG_BATCH}},
        {2, 4, ITH_STRATEGY_ULYSSES, {ITH_CFG_PARALLEL, ITH_CFG_PARALLEL}},
        {4, 2, ITH_STRATEGY_ULYSSES, {ITH_CFG_BATCH, ITH_CFG_SEQUENTIAL}},
        {2, 3, ITH_STRATEGY_RING, {ITH_CFG_BATCH, ITH_CFG_BATCH}},
    };
    const ith_generate_options options = small_run(), again = stopped_run_options(&run);
    stopped_run_check_ranks(&run, &options, &again, changes, sizeof changes / sizeof *changes);
}

/* A run is interrupted several times, and replaces its file meanwhile. The last interruption comes while it decodes. */
static void again_and_again(void **state)
{
    (void)state;
    int64_t count = 0;
    ith_generate_options options = small_run();
    float *whole = stopped_run_whole(&run, 2, &options, &count);
    stopped_run_stop(&run, 2, &options, 1, 1);
    for (int64_t step = 2; step < STEPS; step++) {
        ith_generate_options again = stopped_run_options(&run);
        stopped_run_stop(&run, 1 + (int)step % 2, &again, step, 10);
    }
    ith_generate_options last = stopped_run_options(&run);
    last.checkpoint_file = run.saved;
    free(stopped_run_resume(&run, 2, &last, STEPS - 1));
    assert_int_equal(stopped_run_step(&run), STEPS);
    float *pieces = stopped_run_resume(&run, 1, &last, STEPS); /* only decoding is left */
    assert_memory_equal(pieces, whole, (size_t)count * sizeof *whole);
    free(pieces);
    free(whole);
}

/* A process with another decimal point resumes the run, and saves it for a process that has a point again. */
static void in_another_locale(void **state)
{
    (void)state;
    int64_t count = 0;
    ith_generate_options options = small_run(), again = stopped_run_options(&run);
    options.shift = 3.5, options.guidance[0] = 4.25;
    other_locale_make("tr_TR.UTF-8");
    float *whole = stopped_run_whole(&run, 1, &options, &count);
    stopped_run_stop(&run, 1, &options, 1, 1);
    setlocale(LC_ALL, "tr_TR.UTF-8");
    stopped_run_stop(&run, 1, &again, 2, 1);
    setlocale(LC_ALL, "C");
    float *pieces = stopped_run_resume(&run, 1, &again, 2);
    assert_memory_equal(pieces, whole, (size_t)count * sizeof *whole);
    free(pieces);
    free(whole);
}

/* ---- Refusals -------------------------------------------------------------------------------------------------- */

static void expect_refusal(const ith_generate_options *options, ith_status status, const char *words)
{
    assert_int_equal(engine_generate(context, pipeline, 1, options, NULL), status);
    if (!strstr(ith_context_error(context), words))
        fail_msg("no '%s' in: %s", words, ith_context_error(context));
}

static void contradictions_are_named(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    stopped_run_stop(&run, 1, &options, 1, 1);
#define CONTRADICT(words, change)                                                                                      \
    do {                                                                                                               \
        ith_generate_options again = stopped_run_options(&run);                                                        \
        change;                                                                                                        \
        expect_refusal(&again, ITH_ERR_ARGUMENT, words);                                                               \
    } while (0)
    CONTRADICT("prompt is not the same in", again.prompt = "A red circle");
    CONTRADICT("negative is not the same in", again.negative = "");
    CONTRADICT("frames is 9, and 5 in", again.frames = 9);
    CONTRADICT("height is 64, and 48 in", again.height = 64);
    CONTRADICT("width is 64, and 32 in", again.width = 64);
    CONTRADICT("steps is 6, and 5 in", again.steps = 6);
    CONTRADICT("shift is 5, and 3 in", again.shift = 5);
    CONTRADICT("guidance is 5, and 4 in", again.guidance[0] = 5);
    CONTRADICT("guidance of the low-noise expert is 5, and 3 in", again.guidance[1] = 5);
    CONTRADICT("boundary is 0.25, and", again.boundary = 0.25);
    CONTRADICT("solver is euler, and unipc in", again.solver = ITH_SOLVER_EULER);
    CONTRADICT("solver is dpm++, and unipc in", again.solver = ITH_SOLVER_DPMPP);
    CONTRADICT("sigmas is diffusers, and official in", again.sigmas = ITH_SIGMAS_DIFFUSERS);
    CONTRADICT("precision is bf16, and f32 in", again.precision = ITH_PRECISION_BF16);
    CONTRADICT("seed is 4, and 3 in", again.seed = 4);
    attention.block_kv = 512;
    CONTRADICT("block_kv is 512, and 0 in", again.attention = &attention);
    CONTRADICT("takes no image whose shape would need an area", again.area = 4096); /* the saved run has no area */
    assert_null(strstr(ith_context_error(context), "another model"));
    CONTRADICT("dump_file", again.dump_file = altered);
    CONTRADICT("from_latents", again.from_latents = run.latents);
    CONTRADICT("leave out dump_file", again.resume_file = NULL; again.from_latents = run.latents;
               again.dump_file = altered);
    CONTRADICT("leave out latents_file", again.resume_file = NULL; again.from_latents = run.latents;
               again.latents_file = altered);
    CONTRADICT("checkpoint_every is -1", again.checkpoint_every = -1);
    ith_generate_options same = small_run();
    same.resume_file = run.saved; /* the options of the saved run may be given again */
    free(stopped_run_resume(&run, 1, &same, 1));
}

/* Copies the saved run to `altered`. `to` replaces the first `from`, and has the same length. */
static void alter(const char *from, const char *to)
{
    size_t bytes = 0;
    char *whole = temporary_read(run.saved, &bytes), *at = memmem(whole, bytes, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    temporary_write(altered, whole, bytes);
    free(whole);
}

/* Damages the numbers at the end of the saved run, and cuts its last byte. infinity: words of the sentence about a last
 * number that is infinite. */
static void expect_damage_found(const ith_generate_options *options, const char *infinity)
{
    size_t bytes = 0;
    char *whole = temporary_read(run.saved, &bytes);
    whole[bytes - 3] ^= 1;
    temporary_write(altered, whole, bytes);
    expect_refusal(options, ITH_ERR_FORMAT, "their hash differs");
    whole[bytes - 1] = (char)0x7f, whole[bytes - 2] = (char)0x80;
    temporary_write(altered, whole, bytes);
    expect_refusal(options, ITH_ERR_FORMAT, infinity);
    temporary_write(altered, whole, bytes - 1);
    expect_refusal(options, ITH_ERR_FORMAT, altered);
    free(whole);
}

static void another_file_is_refused(void **state)
{
    (void)state;
    ith_generate_options options = small_run(), again = stopped_run_options(&run);
    stopped_run_stop(&run, 1, &options, 1, 1);
    again.resume_file = altered;
    char version[64], other[64];
    snprintf(version, sizeof version, "\"ithaca\":\"%s\"", ITH_SAVED_VERSION);
    snprintf(other, sizeof other, "\"ithaca\":\"%s\"", ITH_SAVED_VERSION);
    other[10]++;
    alter(version, other);
    expect_refusal(&again, ITH_ERR_UNSUPPORTED, "only the same version");
    snprintf(other, sizeof other, "\"ithaca\":\"%s\"%*s", ith_version(),
             (int)(strlen(ITH_SAVED_VERSION) - strlen(ith_version())), ""); /* an earlier build of this version */
    alter(version, other);
    expect_refusal(&again, ITH_ERR_UNSUPPORTED, "only the same version");
    alter("\"ithaca\"", "\"thacai\"");
    expect_refusal(&again, ITH_ERR_FORMAT, "it is no saved run");
    alter("\"model\":\"", "\"model\":\"x");
    expect_refusal(&again, ITH_ERR_FORMAT, "model in its metadata");
    alter("\"steps\":\"5\"", "\"steps\":\"x\"");
    expect_refusal(&again, ITH_ERR_FORMAT, "steps in its metadata");
    alter("\"step\":\"1\"", "\"step\":\"7\"");
    expect_refusal(&again, ITH_ERR_FORMAT, "step 7 of 5");
    static const char *const changes[][2] = {{"\"height\":\"48\"", "\"height\":\"64\""},
                                             {"\"step\":\"1\"", "\"step\":\"2\""},
                                             {"\"steps\":\"5\"", "\"steps\":\"6\""},
                                             {"\"seed\":\"3\"", "\"seed\":\"4\""}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        alter(changes[i][0], changes[i][1]);
        expect_refusal(&again, ITH_ERR_FORMAT, "its metadata was changed or is damaged");
    }
    alter("\"solver\":\"unipc\"", "\"solver\":\"other\"");
    expect_refusal(&again, ITH_ERR_FORMAT, "solver in its metadata");
    alter("\"solver\":\"unipc\"", "\"solver\":\"dpm++\""); /* which has fewer arrays */
    expect_refusal(&again, ITH_ERR_FORMAT, "its metadata was changed or is damaged");
    expect_damage_found(&again, "not finite");
    again.resume_file = "/nonexistent";
    expect_refusal(&again, ITH_ERR_IO, "/nonexistent");
}

/* The file of another solver has other arrays. */
static void another_history_is_refused(void **state)
{
    (void)state;
    ith_generate_options options = small_run(), again = stopped_run_options(&run);
    options.solver = ITH_SOLVER_DPMPP;
    stopped_run_stop(&run, 1, &options, 2, 1);
    again.resume_file = altered;
    alter("\"solver\":\"dpm++\"", "\"solver\":\"unipc\"");
    expect_refusal(&again, ITH_ERR_FORMAT, "its metadata was changed or is damaged");
    alter("\"solver\":\"dpm++\"", "\"solver\":\"dpm--\"");
    expect_refusal(&again, ITH_ERR_FORMAT, "solver in its metadata");
    alter("\"prediction_1\":", "\"prediction_2\":");
    expect_refusal(&again, ITH_ERR_FORMAT, "has no tensor prediction_1");
    expect_damage_found(&again, "prediction_1");
}

/* Each size of a tensor is compared: a tensor that is smaller than its run would be read beyond its end. */
static void tensors_of_another_size_are_refused(void **state)
{
    (void)state;
    const ith_latent_size size = {.channels = 2, .frames = 3, .height = 4, .width = 5};
    const ith_latent_size others[] = {{.channels = 3, .frames = 3, .height = 4, .width = 5},
                                      {.channels = 2, .frames = 4, .height = 4, .width = 5},
                                      {.channels = 2, .frames = 3, .height = 5, .width = 5},
                                      {.channels = 2, .frames = 3, .height = 4, .width = 6}};
    ith_generate_options options = small_run();
    const ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    options.attention = &attention;
    const ith_saved_facts facts = {.options = &options, .plan = "", .attention = ""};
    float numbers[160] = {0}, *tensors[] = {numbers};
    ith_saved_run *saved = NULL;
    uint64_t hash = 0;
    check(context, ith_saved_run_write(context, altered, &facts, &size, tensors, 1));
    check(context, ith_saved_run_open(context, altered, &saved));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(ith_saved_run_read(context, saved, ITH_SOLVER_UNIPC, 0, &others[i], numbers, &hash),
                         ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), "the size of its run"));
    }
    check(context, ith_saved_run_read(context, saved, ITH_SOLVER_UNIPC, 0, &size, numbers, &hash));
    check(context, ith_saved_run_check_hash(context, saved, hash));
    ith_saved_run_close(context, &saved);
}

/* While a saved run is replaced, the disk holds it twice. */
static void room_for_two_files_is_needed(void **state)
{
    (void)state;
    struct statvfs disk;
    assert_int_equal(statvfs(folder, &disk), 0);
    const int64_t room = (int64_t)(disk.f_bavail * disk.f_frsize);
    assert_int_equal(ith_saved_run_check_room(context, altered, room / 4 * 3), ITH_ERR_IO);
    check(context, ith_saved_run_check_room(context, altered, room / 4));
}

static void note_denoising(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)done, (void)total;
    *(bool *)user |= stage == ITH_STAGE_DENOISE;
}

static void a_place_that_cannot_be_written_fails_first(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    bool denoises = false;
    options.on_progress = note_denoising, options.user = &denoises;
    options.checkpoint_file = "/nonexistent/run.safetensors";
    expect_refusal(&options, ITH_ERR_IO, "/nonexistent/run.safetensors");
    assert_false(denoises);
}

/* ---- Later faults ---------------------------------------------------------------------------------------------- */

/* A folder is removed in the middle of a run; a log counts the warnings. */
static int warnings;
static char last_warning[512];

static void count_warnings(void *user, ith_log_level level, const char *line)
{
    (void)user;
    if (level == ITH_LOG_WARNING && strstr(line, "is not saved")) {
        warnings++;
        snprintf(last_warning, sizeof last_warning, "%s", line);
    }
}

static void take_folder_away(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)total;
    if (stage == ITH_STAGE_DENOISE && done > 2 * ITH_PROGRESS_UNIT) {
        unlink(run.saved);
        rmdir((const char *)user);
    }
}

static void a_run_goes_on_when_it_cannot_be_saved(void **state)
{
    (void)state;
    char *place = temporary_folder();
    ith_context_options asked = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *own = NULL;
    ith_pipeline *loud = NULL;
    ith_generate_options options = small_run();
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    asked.log = count_warnings, asked.log_level = ITH_LOG_WARNING;
    assert_int_equal(ith_context_create(&asked, &own), ITH_OK);
    check(own, ith_pipeline_open(own, model, &loud));
    snprintf(run.saved, sizeof run.saved, "%s/run.safetensors", place);
    options.checkpoint_file = run.saved, options.on_progress = take_folder_away, options.user = place;
    check(own, engine_generate(own, loud, 1, &options, &report));
    assert_int_equal(report.saved_step, 2);
    assert_int_equal(warnings, STEPS - 2);
    assert_non_null(strstr(last_warning, "step 5 of 5 is not saved"));
    ith_pipeline_close(&loud);
    ith_context_destroy(&own);
    free(place);
    snprintf(run.saved, sizeof run.saved, "%s/run.safetensors", folder);
}

static void count_other_attention(void *user, ith_log_level level, const char *line)
{
    *(int *)user += level == ITH_LOG_WARNING && strstr(line, "the self-attention is computed with") != NULL;
}

static int usable_kernels(const ith_context *own)
{
    int count = 0;
    bool usable = false;
    for (int i = 0; ith_kernel_list(own, i, &usable); i++)
        count += usable;
    return count;
}

/* A machine that lacks instructions of the machine that saved a run computes the attention with another kernel. It says
 * so once, though there are two ranks and two experts. */
static void another_attention_is_told_once(void **state)
{
    (void)state;
    ith_generate_options options = small_run(), again = stopped_run_options(&run);
    int kernels[2];
    stopped_run_stop(&run, 1, &options, 1, 1);
    for (int limited = 0; limited < 2; limited++) {
        ith_context_options asked = ITH_CONTEXT_OPTIONS_INIT;
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        ith_context *own = NULL;
        ith_pipeline *other = NULL;
        int told = 0;
        if (limited)
            setenv("ITHACA_CPU", "baseline", 1);
        asked.log = count_other_attention, asked.log_user = &told, asked.log_level = ITH_LOG_WARNING;
        assert_int_equal(ith_context_create(&asked, &own), ITH_OK);
        check(own, ith_pipeline_open(own, model, &other));
        check(own, engine_generate(own, other, 2, &again, &report));
        kernels[limited] = usable_kernels(own);
        assert_int_equal(told, limited && kernels[0] > kernels[1]);
        assert_int_equal(report.steps_resumed, 1);
        assert_int_equal(report.steps_done, STEPS);
        ith_pipeline_close(&other);
        ith_context_destroy(&own);
    }
    unsetenv("ITHACA_CPU");
}

/* A run that was stopped in its first step has computed no attention that could be another one. */
static void no_attention_before_the_first_step_is_compared(void **state)
{
    (void)state;
    ith_generate_options options = small_run(), again = stopped_run_options(&run);
    ith_context_options asked = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *own = NULL;
    ith_pipeline *other = NULL;
    int told = 0;
    stopped_run_stop(&run, 1, &options, 0, 1);
    asked.log = count_other_attention, asked.log_user = &told, asked.log_level = ITH_LOG_WARNING;
    assert_int_equal(ith_context_create(&asked, &own), ITH_OK);
    check(own, ith_pipeline_open(own, model, &other));
    check(own, engine_generate(own, other, 1, &again, NULL));
    assert_int_equal(told, 0);
    ith_pipeline_close(&other);
    ith_context_destroy(&own);
}

/* The state after the last step is saved, whatever the number of steps between two saves is. */
static void the_last_step_is_saved(void **state)
{
    static const int64_t every[] = {2, STEPS - 1, STEPS + 2};
    (void)state;
    for (int i = 0; i < 3; i++) {
        ith_generate_options options = small_run();
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        options.checkpoint_file = run.saved, options.checkpoint_every = every[i];
        check(context, engine_generate(context, pipeline, 2, &options, &report));
        assert_int_equal(report.saved_step, STEPS);
    }
}

/* Steps of a run that is saved, and the first one that is wrong in the file. */
typedef struct saved_steps {
    int64_t every;       /* the number of steps between two saves */
    int64_t calls;       /* of the callback while the run denoises */
    int64_t wrong, done; /* the step in the file, and the progress at this moment; wrong: -1: none */
} saved_steps;

static void compare_saved_step(void *user, ith_stage stage, int64_t done, int64_t total)
{
    saved_steps *s = user;
    (void)total;
    if (stage != ITH_STAGE_DENOISE)
        return;
    s->calls++;
    const int64_t step = stopped_run_step(&run), due = (done - 1) / ITH_PROGRESS_UNIT / s->every * s->every;
    if (s->wrong < 0 && ((step % s->every && step != STEPS) || step < due || step > done / ITH_PROGRESS_UNIT))
        s->wrong = step, s->done = done;
}

static void only_due_steps_are_saved(void **state)
{
    (void)state;
    for (int64_t every = 2; every >= 1; every--) {
        saved_steps s = {.every = every, .wrong = -1};
        ith_generate_options options = small_run();
        options.checkpoint_file = run.saved, options.checkpoint_every = every == 1 ? 0 : every;
        options.on_progress = compare_saved_step, options.user = &s;
        unlink(run.saved);
        check(context, engine_generate(context, pipeline, 1, &options, NULL));
        assert_true(s.calls > STEPS);
        if (s.wrong >= 0)
            fail_msg("step %lld is in the file, and %.2f steps are done", (long long)s.wrong,
                     (double)s.done / ITH_PROGRESS_UNIT);
    }
}

/* A disk that is full at the first save ends the run with one sentence: the run does not try again. */
static void a_full_disk_is_told_once(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    struct rlimit before, full;
    options.checkpoint_file = altered;
    unlink(altered);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full = before, full.rlim_cur = 1000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    const ith_status status = engine_generate(context, pipeline, 1, &options, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(EFBIG)));
    assert_null(strstr(ith_context_error(context), "is not saved"));
    assert_int_equal(access(altered, F_OK), -1);
}

static void memory_is_predicted(void **state)
{
    (void)state;
    ith_generate_options options = small_run();
    ith_generate_report saved = ITH_GENERATE_REPORT_INIT;
    int64_t asked_bytes = 0;
    options.height = options.width = 128, options.frames = 17, options.steps = 2;
    options.checkpoint_file = run.saved;
    check(context, ith_pipeline_predict(pipeline, &options, 2, 2, &asked_bytes));
    check(context, engine_generate(context, pipeline, 2, &options, &saved));
    assert_int_equal(saved.predicted_bytes, asked_bytes);
    const double ratio = (double)saved.predicted_bytes / (double)saved.peak_bytes;
    if (ratio < 0.95 || ratio > 1.05)
        fail_msg("predicted %lld bytes, held %lld", (long long)saved.predicted_bytes, (long long)saved.peak_bytes);
}

static ith_status save_and_resume(ith_context *own, void *user)
{
    ith_pipeline *quiet = NULL;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    (void)user;
    ith_status status = ith_pipeline_open(own, model, &quiet);
    options.prompt = "a circle", options.negative = "", options.frames = 1, options.height = options.width = 16;
    options.steps = 2, options.guidance[0] = options.guidance[1] = 1;
    options.threads = 1, options.precision = ITH_PRECISION_F32;
    options.checkpoint_file = altered;
    if (!status)
        status = ith_pipeline_generate(quiet, NULL, &options, NULL);
    ith_generate_options again = ITH_GENERATE_OPTIONS_INIT;
    again.threads = 1, again.resume_file = altered;
    if (!status)
        status = ith_pipeline_resolve(quiet, &again);
    if (!status)
        status = ith_pipeline_generate(quiet, NULL, &again, NULL);
    ith_pipeline_close(&quiet);
    return status;
}

static void no_refused_allocation_is_fatal(void **state)
{
    (void)state;
    const long calls = refuse_every_allocation(save_and_resume, NULL, 13);
    printf("%ld allocations\n", calls);
    assert_true(calls > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_any_step),
        cmocka_unit_test(on_another_number_of_ranks),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(in_another_locale),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(another_file_is_refused),
        cmocka_unit_test(another_history_is_refused),
        cmocka_unit_test(tensors_of_another_size_are_refused),
        cmocka_unit_test(room_for_two_files_is_needed),
        cmocka_unit_test(a_place_that_cannot_be_written_fails_first),
        cmocka_unit_test(a_run_goes_on_when_it_cannot_be_saved),
        cmocka_unit_test(another_attention_is_told_once),
        cmocka_unit_test(no_attention_before_the_first_step_is_compared),
        cmocka_unit_test(the_last_step_is_saved),
        cmocka_unit_test(only_due_steps_are_saved),
        cmocka_unit_test(a_full_disk_is_told_once),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(no_refused_allocation_is_fatal),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
