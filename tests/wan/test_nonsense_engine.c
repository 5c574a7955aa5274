/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of wan.h and files.h with NULL and with nonsense: a status and a sentence, or the neutral answer of
 * functions that return no status. Nothing crashes, and an object that could not be made is NULL. */
#include <ithaca/files.h>

#include "support/engine/pipeline_fixture.h"
#include "support/guarded.h"
#include "support/refused.h"
#include "support/temporary.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int nonsense[] = {-1, INT_MIN, INT_MAX, 99};
enum { NONSENSE = sizeof nonsense / sizeof *nonsense };

/* A run of one frame, which takes little time. */
static ith_generate_options small_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a circle", options.frames = 1, options.height = options.width = 16, options.steps = 1;
    options.threads = 1;
    options.guidance[0] = options.guidance[1] = 1;
    return options;
}

/* ---- wan.h ----------------------------------------------------------------------------------------------------- */

static void words(void **state)
{
    (void)state;
    for (int i = 0; i < NONSENSE; i++) {
        assert_string_equal(ith_solver_name((ith_solver)nonsense[i]), "unknown");
        assert_string_equal(ith_sigmas_name((ith_sigmas)nonsense[i]), "unknown");
        assert_string_equal(ith_cfg_name((ith_cfg)nonsense[i]), "unknown");
        assert_string_equal(ith_precision_name((ith_precision)nonsense[i]), "unknown");
        char text[64] = "before";
        ith_precision_describe(context, (ith_precision)nonsense[i], text, sizeof text);
        assert_string_equal(text, "unknown");
    }
    char text[8] = "before";
    ith_precision_describe(context, ITH_PRECISION_AUTO, NULL, 100);
    ith_precision_describe(context, ITH_PRECISION_AUTO, text, 0);
    assert_string_equal(text, "before");
    ith_precision_describe(NULL, ITH_PRECISION_AUTO, text, sizeof text);
    assert_string_equal(text, "");
}

static void opening(void **state)
{
    (void)state;
    ith_pipeline *made = pipeline;
    REFUSED(NULL, "context is NULL", ith_pipeline_open(NULL, MODEL, &made));
    assert_null(made);
    REFUSED(context, "model_folder is NULL", ith_pipeline_open(context, NULL, &made));
    REFUSED(context, "out is NULL", ith_pipeline_open(context, MODEL, NULL));
    REFUSED(context, "folder is an empty name", ith_pipeline_open(context, "", &made));
    assert_null(made);
    ith_model_files files = ITH_MODEL_FILES_INIT;
    const struct {
        const char **member, *sentence;
    } members[] = {{&files.dit, "dit is an empty name"},
                   {&files.dit_high, "dit_high is an empty name"},
                   {&files.dit_low, "dit_low is an empty name"},
                   {&files.vae, "vae is an empty name"},
                   {&files.text_encoder, "text_encoder is an empty name"},
                   {&files.image_encoder, "image_encoder is an empty name"},
                   {&files.tokenizer, "tokenizer is an empty name"},
                   {&files.variant, "variant is an empty name"}};
    files.folder = MODEL;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        *members[i].member = "";
        REFUSED(context, members[i].sentence, ith_pipeline_open_files(context, &files, &made));
        *members[i].member = NULL;
    }
    const ith_lora_file lora = ITH_LORA_FILE_INIT;
    files.loras = &lora, files.lora_count = INT64_MAX;
    REFUSED(context, "must be from 0 to 32", ith_pipeline_open_files(context, &files, &made));
    const char *const folders[] = {"/nowhere", MODEL "/model_index.json", "/"};
    for (int i = 0; i < 3; i++) {
        made = pipeline;
        REFUSED_AS(ITH_ERR_IO, context, "model_index.json", ith_pipeline_open(context, folders[i], &made));
        assert_null(made);
    }
    ith_pipeline_close(NULL);
    ith_pipeline_close(&made);
    check(context, ith_pipeline_open(context, MODEL, &made));
    ith_pipeline_close(&made);
    ith_pipeline_close(&made);
    assert_null(made);
}

/* The pipeline and the file keep what they need of their context. */
static void contexts_go_first(void **state)
{
    (void)state;
    ith_context *other = NULL;
    ith_pipeline *made = NULL;
    ith_tensor_file *file = NULL;
    int32_t ids[512];
    int64_t count;
    check(NULL, ith_context_create(NULL, &other));
    check(other, ith_pipeline_open(other, MODEL, &made));
    check(other, ith_tensor_file_open(other, "golden/shapes/video.safetensors", &file));
    ith_context_destroy(&other);
    assert_int_equal(ith_pipeline_tokenize(made, "a circle", ids, &count), ITH_OK);
    assert_non_null(ith_tensor_file_find(file, "latents"));
    ith_pipeline_close(&made);
    ith_tensor_file_close(&file);
}

/* The longest text, and a longer one, which would keep a run from being interrupted. */
static void refused_long_texts(void)
{
    enum { MOST = 262144 };
    int32_t ids[512];
    int64_t count = 7;
    ith_generate_options o = small_run();
    char *text = malloc(MOST + 2);
    assert_non_null(text);
    memset(text, 'a', MOST + 1);
    text[MOST + 1] = '\0';
    o.prompt = text;
    REFUSED(context, "has 262145 bytes", ith_pipeline_tokenize(pipeline, text, ids, &count));
    assert_int_equal(count, 0);
    REFUSED(context, "the prompt has 262145 bytes", ith_pipeline_resolve(pipeline, &o));
    text[MOST] = '\0';
    check(context, ith_pipeline_tokenize(pipeline, text, ids, &count));
    assert_int_equal(count, 512);
    free(text);
}

static void asking(void **state)
{
    (void)state;
    ith_model_info info = ITH_MODEL_INFO_INIT;
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_info(NULL, &info));
    REFUSED(context, "ith_model_info is NULL", ith_pipeline_info(pipeline, NULL));
    REFUSED_SIZES(context, info, "ith_model_info", ith_pipeline_info(pipeline, &info));
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_check(NULL));
    ith_pipeline_cancel(NULL);
    int32_t ids[512];
    int64_t count = 7;
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_tokenize(NULL, "a", ids, &count));
    assert_int_equal(count, 0);
    REFUSED(context, "text is NULL", ith_pipeline_tokenize(pipeline, NULL, ids, &count));
    REFUSED(context, "ids is NULL", ith_pipeline_tokenize(pipeline, "a", NULL, &count));
    REFUSED(context, "count is NULL", ith_pipeline_tokenize(pipeline, "a", ids, NULL));
    count = 7;
    REFUSED(context, "UTF-8", ith_pipeline_tokenize(pipeline, "a \xff", ids, &count));
    refused_long_texts();
    ith_tokenizer *tokenizer = NULL;
    REFUSED(NULL, "context is NULL", ith_tokenizer_open(NULL, "a", &tokenizer));
    REFUSED(context, "path is NULL", ith_tokenizer_open(context, NULL, &tokenizer));
    REFUSED(context, "out is NULL", ith_tokenizer_open(context, "a", NULL));
    REFUSED(context, "path is an empty name", ith_tokenizer_open(context, "", &tokenizer));
    assert_null(tokenizer);
    assert_int_equal(ith_tokenizer_open(context, "not/there", &tokenizer), ITH_ERR_IO);
    assert_null(tokenizer);
    REFUSED(NULL, "tokenizer is NULL", ith_tokenizer_ids(tokenizer, "a", ids, &count));
    ith_tokenizer_close(&tokenizer);
    ith_tokenizer_close(NULL);
    const ith_generate_options o = small_run();
    REFUSED(context, "count is -1, and must be 0 or more", ith_pipeline_encode(pipeline, NULL, &o, NULL, -1));
    assert_int_equal(count, 0);
}

/* Resolving, predicting and generating must refuse the options in the same way. */
static void expect_refused(ith_status wanted, const ith_generate_options *options, const char *word)
{
    ith_generate_options copy = *options;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    int64_t bytes = 7;
    REFUSED_AS(wanted, context, word, ith_pipeline_resolve(pipeline, &copy));
    assert_memory_equal(&copy, options, sizeof copy);
    REFUSED_AS(wanted, context, word, ith_pipeline_predict(pipeline, options, 1, 1, &bytes));
    assert_int_equal(bytes, 7);
    REFUSED_AS(wanted, context, word, ith_pipeline_generate(pipeline, NULL, options, &report));
    assert_int_equal(report.frames_done, 0);
}

static void options_of_runs(void **state)
{
    (void)state;
    ith_generate_options o = small_run();
    int64_t bytes = 7;
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_resolve(NULL, &o));
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_predict(NULL, &o, 1, 1, &bytes));
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_generate(NULL, NULL, &o, NULL));
    REFUSED(context, "ith_generate_options is NULL", ith_pipeline_resolve(pipeline, NULL));
    REFUSED(context, "ith_generate_options is NULL", ith_pipeline_predict(pipeline, NULL, 1, 1, &bytes));
    const int teams[][2] = {{0, 0}, {1, 0}, {1, 2}, {-1, -1}, {INT_MIN, 1}};
    for (int i = 0; i < 5; i++)
        REFUSED(context, "ranks_here", ith_pipeline_predict(pipeline, &o, teams[i][0], teams[i][1], &bytes));
    REFUSED(context, "the number of ranks in this process is 2147483647",
            ith_pipeline_predict(pipeline, &o, INT_MAX, INT_MAX, &bytes));
    REFUSED(context, "ranks is 2000000", ith_pipeline_predict(pipeline, &o, 2000000, 1, &bytes));
    assert_int_equal(bytes, 7);
    REFUSED(context, "bytes is NULL", ith_pipeline_predict(pipeline, &o, 1, 1, NULL));
    REFUSED(context, "ith_generate_options is NULL", ith_pipeline_generate(pipeline, NULL, NULL, NULL));
    REFUSED_SIZES(context, o, "ith_generate_options", ith_pipeline_resolve(pipeline, &o));
    REFUSED_SIZES(context, o, "ith_generate_options", ith_pipeline_predict(pipeline, &o, 1, 1, &bytes));
    REFUSED_SIZES(context, o, "ith_generate_options", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    REFUSED_SIZES(context, report, "ith_generate_report", ith_pipeline_generate(pipeline, NULL, &o, &report));
    o.guidance[0] = o.guidance[1] = 1, o.negative = "\xff"; /* not used by this run, but saved with it */
    expect_refused(ITH_ERR_ARGUMENT, &o, "the negative prompt is not UTF-8");
    o = small_run();
    o.threads = 65536; /* OpenMP would end the program if it could not start them */
    expect_refused(ITH_ERR_ARGUMENT, &o, "threads is 65536");
    o.prompt = NULL;
    expect_refused(ITH_ERR_ARGUMENT, &o, "prompt");
    const struct {
        size_t at;
        const char *word;
        bool wide;
    } fields[] = {
        {offsetof(ith_generate_options, frames), "frames", true},
        {offsetof(ith_generate_options, height), "height", true},
        {offsetof(ith_generate_options, width), "width", true},
        {offsetof(ith_generate_options, steps), "steps", true},
        {offsetof(ith_generate_options, solver), "solver", false},
        {offsetof(ith_generate_options, sigmas), "sigmas", false},
        {offsetof(ith_generate_options, cfg), "cfg", false},
        {offsetof(ith_generate_options, precision), "precision", false},
        {offsetof(ith_generate_options, threads), "threads", false},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (int j = 0; j < 3; j++) { /* nonsense[3] is 99, a legal number of threads */
            o = small_run();
            const int64_t wide[] = {-1, INT64_MIN, INT64_MAX};
            memcpy((char *)&o + fields[i].at, fields[i].wide ? (const void *)&wide[j] : (const void *)&nonsense[j],
                   fields[i].wide ? sizeof wide[j] : sizeof nonsense[j]);
            expect_refused(ITH_ERR_ARGUMENT, &o, fields[i].word);
        }
}

/* Members that are numbers of steps, bytes or pixels, or choices, in an int64_t. */
static void choices_of_runs(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        const char *word;
        bool may_be_large;
    } fields[] = {
        {offsetof(ith_generate_options, keep_packed), "keep_packed is", false},
        {offsetof(ith_generate_options, fit), "fit is", false},
        {offsetof(ith_generate_options, area), "area", false},
        {offsetof(ith_generate_options, checkpoint_every), "checkpoint_every is", true},
        {offsetof(ith_generate_options, preview_every), "preview_every is", true},
        {offsetof(ith_generate_options, device_memory), "device_memory is", true},
    };
    const int64_t values[] = {-1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (int j = 0; j < 3; j++) {
            ith_generate_options o = small_run();
            memcpy((char *)&o + fields[i].at, &values[j], sizeof values[j]);
            if (values[j] < 0 || !fields[i].may_be_large)
                expect_refused(ITH_ERR_ARGUMENT, &o, fields[i].word);
            else
                check(context, ith_pipeline_generate(pipeline, NULL, &o, NULL));
        }
}

static void lora_files(void **state)
{
    (void)state;
    ith_pipeline *made = pipeline;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_lora_file lora = ITH_LORA_FILE_INIT;
    files.folder = MODEL, files.lora_count = -1;
    REFUSED(context, "lora_count is -1", ith_pipeline_open_files(context, &files, &made));
    assert_null(made);
    files.lora_count = 1;
    REFUSED(context, "loras is NULL", ith_pipeline_open_files(context, &files, &made));
    files.loras = &lora;
    REFUSED(context, "without a file name", ith_pipeline_open_files(context, &files, &made));
    lora.file = "";
    REFUSED(context, "without a file name", ith_pipeline_open_files(context, &files, &made));
    lora.file = "/nowhere";
    const double strengths[] = {NAN, INFINITY, 1e300};
    for (int i = 0; i < 3; i++) {
        lora.strength = strengths[i];
        REFUSED(context, "/nowhere: a strength of", ith_pipeline_open_files(context, &files, &made));
    }
    lora.strength = 1;
    for (int i = 0; i < NONSENSE; i++) {
        lora.expert = nonsense[i];
        REFUSED(context, "is no ith_lora_expert", ith_pipeline_open_files(context, &files, &made));
    }
    lora.expert = ITH_LORA_BY_NAME;
    REFUSED_SIZES(context, lora, "ith_lora_file", ith_pipeline_open_files(context, &files, &made));
}

/* Functions that describe a model or a run. */
static void descriptions(void **state)
{
    (void)state;
    const ith_generate_options run = small_run();
    ith_generate_options o = run;
    ith_model_part part = ITH_MODEL_PART_INIT;
    char text[4] = "abc";
    int64_t bytes = 7;
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_part(NULL, 0, &part));
    REFUSED(context, "ith_model_part is NULL", ith_pipeline_part(pipeline, 0, NULL));
    REFUSED_SIZES(context, part, "ith_model_part", ith_pipeline_part(pipeline, 0, &part));
    for (int i = 0; i < NONSENSE; i++) {
        part.name = "before";
        check(context, ith_pipeline_part(pipeline, nonsense[i], &part));
        assert_null(part.name);
    }
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_describe_loras(NULL, text, sizeof text));
    REFUSED(context, "text is NULL", ith_pipeline_describe_loras(pipeline, NULL, sizeof text));
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_advise(NULL, &o, text, sizeof text));
    REFUSED(context, "ith_generate_options is NULL", ith_pipeline_advise(pipeline, NULL, text, sizeof text));
    REFUSED(context, "text is NULL", ith_pipeline_advise(pipeline, &o, NULL, sizeof text));
    REFUSED_SIZES(context, o, "ith_generate_options", ith_pipeline_advise(pipeline, &o, text, sizeof text));
    assert_string_equal(text, "abc");
    check(context, ith_pipeline_describe_loras(pipeline, text, 0));
    assert_string_equal(text, "abc");
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_predict_device(NULL, &run, 1, 1, &bytes));
    REFUSED(context, "bytes is NULL", ith_pipeline_predict_device(pipeline, &run, 1, 1, NULL));
    REFUSED(context, "ranks_here", ith_pipeline_predict_device(pipeline, &run, 0, 1, &bytes));
    REFUSED(NULL, "pipeline is NULL", ith_pipeline_check_memory(NULL, &run, 1, 1, &bytes));
    REFUSED(context, "free_bytes is NULL", ith_pipeline_check_memory(pipeline, &run, 1, 1, NULL));
    REFUSED(context, "ranks is 2147483647", ith_pipeline_check_memory(pipeline, &run, INT_MAX, 1, &bytes));
    assert_int_equal(bytes, 7);
    check(context, ith_model_lend(NULL, MODEL));
}

/* Memory ends where the struct of an older header ends. */
static void options_of_older_headers(void **state)
{
    (void)state;
    const ith_generate_options o = small_run();
    for (size_t bytes = offsetof(ith_generate_options, negative); bytes <= sizeof o; bytes += sizeof(int64_t)) {
        int64_t predicted = 0;
        ith_generate_options *older = guarded_new((int64_t)bytes, (int64_t)sizeof(int64_t), true);
        memcpy(older, &o, bytes);
        older->struct_size = bytes;
        check(context, ith_pipeline_resolve(pipeline, older));
        assert_int_equal(older->struct_size, bytes);
        check(context, ith_pipeline_predict(pipeline, older, 1, 1, &predicted));
        guarded_free_all();
    }
}

static void fractions_of_runs(void **state)
{
    (void)state;
    const double wrong[] = {-1e300, 1e300, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        ith_generate_options o = small_run();
        o.shift = wrong[i];
        expect_refused(ITH_ERR_ARGUMENT, &o, "shift");
        o = small_run(), o.guidance[0] = wrong[i];
        expect_refused(ITH_ERR_ARGUMENT, &o, "guidance");
        o = small_run(), o.guidance[1] = wrong[i];
        expect_refused(ITH_ERR_ARGUMENT, &o, "guidance");
        o = small_run(), o.boundary = wrong[i];
        expect_refused(ITH_ERR_ARGUMENT, &o, "boundary");
    }
    ith_generate_options o = small_run();
    o.shift = NAN;
    expect_refused(ITH_ERR_ARGUMENT, &o, "shift");
}

static void texts_of_runs(void **state)
{
    (void)state;
    ith_generate_options o = small_run();
    o.from_latents = "/nowhere";
    expect_refused(ITH_ERR_IO, &o, "/nowhere");
    o = small_run(), o.noise_file = "/nowhere";
    expect_refused(ITH_ERR_IO, &o, "/nowhere");
    o = small_run(), o.prompt = "\xc3(";
    REFUSED(context, "UTF-8", ith_pipeline_generate(pipeline, NULL, &o, NULL));
}

static void forbid(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)user, (void)stage, (void)done, (void)total;
    fail_msg("the run began to compute");
}

/* Writes the noise of a small run. */
static void write_noise(const char *path)
{
    static const float zeros[16 * 2 * 2];
    ith_tensor noise = ITH_TENSOR_INIT;
    noise.name = "noise", noise.dtype = ITH_F32, noise.dims = 4, noise.data = zeros, noise.bytes = sizeof zeros;
    noise.shape[0] = 16, noise.shape[1] = 1, noise.shape[2] = noise.shape[3] = 2;
    check(context, ith_tensor_file_write(context, path, &noise, 1, NULL, NULL, 0));
}

/* Names of files that cannot be written are refused before the run computes. */
static void outputs_of_runs(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *same = temporary_path(folder, "same"), *link = temporary_path(folder, "link");
    const char *dotted = temporary_path(folder, "./same");
    assert_int_equal(symlink("same", link), 0);
    const ith_generate_options plain = small_run();
    ith_generate_options o = plain;
    const char **const outputs[] = {&o.checkpoint_file, &o.latents_file, &o.dump_file};
    static const char *const names[] = {"checkpoint_file and", "latents_file and", "dump_file and"};
    for (int i = 0; i < 3; i++) {
        const char *const wrong[] = {"/nowhere/file", folder};
        for (int j = 0; j < 2; j++) {
            o = plain, o.on_progress = forbid, *outputs[i] = wrong[j];
            REFUSED_AS(ITH_ERR_IO, context, wrong[j], ith_pipeline_generate(pipeline, NULL, &o, NULL));
        }
        for (int j = i + 1; j < 3; j++) {
            o = plain, o.on_progress = forbid, *outputs[i] = same, *outputs[j] = link;
            REFUSED(context, names[i], ith_pipeline_generate(pipeline, NULL, &o, NULL));
            *outputs[j] = dotted;
            REFUSED(context, names[i], ith_pipeline_generate(pipeline, NULL, &o, NULL));
        }
        write_noise(same);
        o = plain, o.on_progress = forbid, *outputs[i] = link, o.noise_file = same;
        REFUSED(context, names[i], ith_pipeline_generate(pipeline, NULL, &o, NULL));
    }
    temporary_remove(folder);
}

/* An output does not replace a file of the model, under any of its names. */
static void outputs_in_a_model(void **state)
{
    (void)state;
    static const char *const names[] = {"model_index.json",       "scheduler/scheduler_config.json",
                                        "tokenizer/spiece.model", "text_encoder/config.json",
                                        "vae/config.json",        "vae/diffusion_pytorch_model.safetensors"};
    char *folder = temporary_folder();
    const char *link = temporary_path(folder, "link");
    ith_generate_options o = small_run();
    o.on_progress = forbid;
    char *model = realpath(MODEL, NULL);
    assert_non_null(model);
    assert_int_equal(symlink(model, link), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", i % 2 ? link : MODEL, names[i]);
        assert_int_equal(access(path, F_OK), 0);
        o.latents_file = o.dump_file = o.checkpoint_file = NULL;
        *(i % 3 ? i % 3 > 1 ? &o.latents_file : &o.dump_file : &o.checkpoint_file) = path;
        REFUSED(context, "is a file of the model", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    }
    free(model);
    temporary_remove(folder);
}

static void attention_of_runs(void **state)
{
    (void)state;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    ith_generate_options o = small_run();
    o.attention = &attention;
    REFUSED_SIZES(context, attention, "ith_attn_options", ith_pipeline_resolve(pipeline, &o));
    REFUSED_SIZES(context, attention, "ith_attn_options", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    attention.strategy = (ith_strategy)99;
    REFUSED(context, "strategy is 99", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    attention = (ith_attn_options)ITH_ATTN_OPTIONS_INIT, attention.block_q = INT64_MIN;
    REFUSED(context, "block_q is -", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    attention = (ith_attn_options)ITH_ATTN_OPTIONS_INIT, attention.kernel = "abacus";
    REFUSED(context, "abacus", ith_pipeline_generate(pipeline, NULL, &o, NULL));
}

static ith_status answer(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)index, (void)rgb, (void)height, (void)width;
    return *(const ith_status *)user;
}

static ith_status fail_with_a_reason(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)user, (void)index, (void)rgb, (void)height, (void)width;
    ith_tensor_file *file = NULL;
    return ith_tensor_file_open(context, "/nowhere", &file);
}

static void answers_of_callbacks(void **state)
{
    (void)state;
    const int numbers[] = {1, INT_MAX, -11, INT_MIN};
    ith_generate_options o = small_run();
    ith_status status;
    o.on_frame = answer, o.user = &status;
    for (int i = 0; i < 4; i++) {
        status = (ith_status)numbers[i];
        REFUSED_AS(ITH_ERR_ABORTED, context, "no ith_status", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    }
    status = ITH_ERR_NUMERIC;
    REFUSED_AS(ITH_ERR_NUMERIC, context, "on_frame returned ITH_ERR_NUMERIC for frame 0",
               ith_pipeline_generate(pipeline, NULL, &o, NULL));
    o.on_frame = fail_with_a_reason;
    REFUSED_AS(ITH_ERR_IO, context, "cannot open /nowhere", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    status = ITH_OK, o.on_frame = answer;
    check(context, ith_pipeline_generate(pipeline, NULL, &o, NULL));
}

/* A pipeline, and whether tokenizes_meanwhile is under way, which may be called while it calls the library. */
typedef struct asker {
    ith_pipeline *pipeline;
    bool asking;
} asker;

static bool tokenizes_meanwhile(void *user)
{
    asker *a = user;
    int32_t ids[512];
    int64_t count = 0;
    if (a->asking)
        return false;
    a->asking = true;
    check(context, ith_pipeline_tokenize(a->pipeline, "a", ids, &count));
    assert_true(count > 1);
    a->asking = false;
    return false;
}

/* should_stop is also called while the run reads the tokenizer. */
static void should_stop_uses_the_tokenizer(void **state)
{
    (void)state;
    asker a = {.asking = false};
    ith_generate_options o = small_run();
    check(context, ith_pipeline_open(context, MODEL, &a.pipeline));
    o.should_stop = tokenizes_meanwhile, o.user = &a;
    check(context, ith_pipeline_generate(a.pipeline, NULL, &o, NULL));
    ith_pipeline_close(&a.pipeline);
}

/* A run of one pipeline, in whose callbacks another pipeline of the same context makes a run. */
typedef struct nest {
    ith_pipeline *inner;
    bool inner_done; /* the inner run has ended */
    bool stops;      /* should_stop asks to stop when the inner run has ended */
    int64_t frames;  /* thousandths of frames that on_progress has shown */
} nest;

static void run_inside(void *user, ith_stage stage, int64_t done, int64_t total)
{
    nest *n = user;
    const ith_generate_options o = small_run();
    (void)total;
    if (stage == ITH_STAGE_DECODE)
        n->frames = done;
    if (n->inner_done || stage != ITH_STAGE_TEXT)
        return;
    check(context, ith_pipeline_generate(n->inner, NULL, &o, NULL));
    n->inner_done = true;
}

static bool stops_after_the_inner_run(void *user)
{
    const nest *n = user;
    return n->stops && n->inner_done;
}

/* After the inner run the outer run still shows its progress and asks whether to stop. */
static void a_run_within_a_run(void **state)
{
    (void)state;
    nest n = {.inner_done = false};
    ith_generate_options o = small_run();
    o.on_progress = run_inside, o.should_stop = stops_after_the_inner_run, o.user = &n;
    check(context, ith_pipeline_open(context, MODEL, &n.inner));
    check(context, ith_pipeline_generate(pipeline, NULL, &o, NULL));
    assert_int_equal(n.frames, ITH_PROGRESS_UNIT);
    n.inner_done = false, n.stops = true;
    REFUSED_AS(ITH_ERR_INTERRUPTED, context, "stopped", ith_pipeline_generate(pipeline, NULL, &o, NULL));
    ith_pipeline_close(&n.inner);
}

/* ---- files.h --------------------------------------------------------------------------------------------------- */

static void tensor_files(void **state)
{
    (void)state;
    const char *path = "golden/shapes/video.safetensors";
    ith_tensor_file *file = (ith_tensor_file *)context;
    REFUSED(NULL, "context is NULL", ith_tensor_file_open(NULL, path, &file));
    assert_null(file);
    REFUSED(context, "path is NULL", ith_tensor_file_open(context, NULL, &file));
    REFUSED(context, "out is NULL", ith_tensor_file_open(context, path, NULL));
    const char *const paths[] = {"", "/", "/nowhere", MODEL};
    for (int i = 0; i < 4; i++) {
        file = (ith_tensor_file *)context;
        REFUSED_AS(ITH_ERR_IO, context, "cannot", ith_tensor_file_open(context, paths[i], &file));
        assert_null(file);
    }
    assert_int_equal(ith_tensor_file_count(NULL), 0);
    assert_null(ith_tensor_file_at(NULL, 0));
    assert_null(ith_tensor_file_find(NULL, "latents"));
    assert_null(ith_tensor_file_metadata(NULL, "a"));
    check(context, ith_tensor_file_open(context, path, &file));
    const int64_t indices[] = {-1, INT64_MIN, INT64_MAX, ith_tensor_file_count(file)};
    for (int i = 0; i < 4; i++)
        assert_null(ith_tensor_file_at(file, indices[i]));
    assert_null(ith_tensor_file_find(file, NULL));
    assert_null(ith_tensor_file_find(file, ""));
    assert_null(ith_tensor_file_metadata(file, NULL));
    ith_tensor_file_close(NULL);
    ith_tensor_file_close(&file);
    ith_tensor_file_close(&file);
    assert_null(file);
}

static const float three[] = {1, 2, 3};

static ith_tensor tensor_of_three(void)
{
    ith_tensor tensor = ITH_TENSOR_INIT;
    tensor.name = "three", tensor.dtype = ITH_F32, tensor.dims = 1, tensor.shape[0] = 3;
    tensor.data = three, tensor.bytes = sizeof three;
    return tensor;
}

/* Converting and writing must refuse a tensor in the same way. */
static void expect_wrong_tensor(const ith_tensor *tensor, const char *path, const char *word)
{
    float values[3];
    REFUSED(context, word, ith_tensor_to_f32(context, tensor, values));
    REFUSED(context, word, ith_tensor_file_write(context, path, tensor, 1, NULL, NULL, 0));
    assert_int_equal(ith_tensor_elements(tensor), 0);
    assert_int_equal(access(path, F_OK), -1);
}

static void wrong_tensors(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "three");
    const size_t sizes[] = {0, 3, 8, 1 << 20, SIZE_MAX};
    ith_tensor tensor = tensor_of_three();
    for (int i = 0; i < 5; i++) {
        tensor.struct_size = sizes[i];
        expect_wrong_tensor(&tensor, path, "ith_tensor");
    }
    for (int i = 0; i < NONSENSE; i++) {
        tensor = tensor_of_three(), tensor.dims = nonsense[i];
        expect_wrong_tensor(&tensor, path, "dimensions");
        tensor = tensor_of_three(), tensor.shape[0] = nonsense[i];
        expect_wrong_tensor(&tensor, path, "12 bytes");
        tensor = tensor_of_three(), tensor.bytes = nonsense[i];
        expect_wrong_tensor(&tensor, path, "bytes, which");
        tensor = tensor_of_three(), tensor.dtype = (ith_dtype)nonsense[i];
        expect_wrong_tensor(&tensor, path, "three");
    }
    tensor = tensor_of_three(), tensor.dims = 2, tensor.shape[0] = 0, tensor.shape[1] = -3, tensor.bytes = 0;
    expect_wrong_tensor(&tensor, path, "[0, -3]");
    tensor = tensor_of_three(), tensor.data = NULL;
    expect_wrong_tensor(&tensor, path, "NULL");
    tensor = tensor_of_three(), tensor.name = NULL;
    REFUSED(context, "name", ith_tensor_file_write(context, path, &tensor, 1, NULL, NULL, 0));
    ith_tensor two[] = {tensor_of_three(), tensor_of_three(), tensor_of_three()}; /* the third is not theirs */
    two[1].name = "other";
    for (int i = -8; i <= 8; i += 16) {
        two[1].struct_size = sizeof(ith_tensor) + (size_t)i;
        REFUSED(context, "struct_size of element 1 of the ith_tensor",
                ith_tensor_file_write(context, path, two, 2, NULL, NULL, 0));
    }
    assert_int_equal(ith_tensor_elements(NULL), 0);
    temporary_remove(folder);
}

static void writing(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "three");
    const ith_tensor tensor = tensor_of_three();
    const char *const words_there[] = {"a", "b"}, *const gap[] = {"a", NULL};
    REFUSED(NULL, "context is NULL", ith_tensor_file_write(NULL, path, &tensor, 1, NULL, NULL, 0));
    REFUSED(context, "path is NULL", ith_tensor_file_write(context, NULL, &tensor, 1, NULL, NULL, 0));
    REFUSED(context, "tensors is NULL", ith_tensor_file_write(context, path, NULL, 1, NULL, NULL, 0));
    REFUSED(context, "tensor_count is -1", ith_tensor_file_write(context, path, &tensor, -1, NULL, NULL, 0));
    REFUSED(context, "pair_count is -9", ith_tensor_file_write(context, path, &tensor, 1, NULL, NULL, INT64_MIN));
    REFUSED(context, "keys is NULL", ith_tensor_file_write(context, path, &tensor, 1, NULL, words_there, 2));
    REFUSED(context, "values is NULL", ith_tensor_file_write(context, path, &tensor, 1, words_there, NULL, 2));
    REFUSED(context, "keys[1] is NULL", ith_tensor_file_write(context, path, &tensor, 1, gap, words_there, 2));
    REFUSED(context, "values[1] is NULL", ith_tensor_file_write(context, path, &tensor, 1, words_there, gap, 2));
    REFUSED_AS(ITH_ERR_MEMORY, context, "a list of tensors",
               ith_tensor_file_write(context, path, &tensor, INT64_MAX, NULL, NULL, 0));
    REFUSED_AS(ITH_ERR_IO, context, "cannot", ith_tensor_file_write(context, "", &tensor, 1, NULL, NULL, 0));
    REFUSED_AS(ITH_ERR_IO, context, "cannot", ith_tensor_file_write(context, folder, &tensor, 1, NULL, NULL, 0));
    assert_int_equal(access(path, F_OK), -1);
    temporary_remove(folder);
}

static void converting(void **state)
{
    (void)state;
    const ith_tensor tensor = tensor_of_three();
    float values[3];
    REFUSED(NULL, "context is NULL", ith_tensor_to_f32(NULL, &tensor, values));
    REFUSED(context, "ith_tensor is NULL", ith_tensor_to_f32(context, NULL, values));
    REFUSED(context, "out is NULL", ith_tensor_to_f32(context, &tensor, NULL));
    REFUSED(NULL, "context is NULL", ith_tensor_from_f32(NULL, three, 3, ITH_F32, values));
    REFUSED(context, "values is NULL", ith_tensor_from_f32(context, NULL, 3, ITH_F32, values));
    REFUSED(context, "out is NULL", ith_tensor_from_f32(context, three, 3, ITH_F32, NULL));
    REFUSED(context, "count is -3", ith_tensor_from_f32(context, three, -3, ITH_F32, values));
    REFUSED(context, "count is 9", ith_tensor_from_f32(context, three, INT64_MAX, ITH_F32, values));
    for (int i = 0; i < NONSENSE; i++)
        REFUSED_AS(ITH_ERR_UNSUPPORTED, context, "type",
                   ith_tensor_from_f32(context, three, 3, (ith_dtype)nonsense[i], values));
    check(context, ith_tensor_from_f32(context, NULL, 0, ITH_F32, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(opening),
        cmocka_unit_test(contexts_go_first),
        cmocka_unit_test(asking),
        cmocka_unit_test(options_of_runs),
        cmocka_unit_test(choices_of_runs),
        cmocka_unit_test(lora_files),
        cmocka_unit_test(descriptions),
        cmocka_unit_test(options_of_older_headers),
        cmocka_unit_test(fractions_of_runs),
        cmocka_unit_test(texts_of_runs),
        cmocka_unit_test(outputs_in_a_model),
        cmocka_unit_test(outputs_of_runs),
        cmocka_unit_test(attention_of_runs),
        cmocka_unit_test(answers_of_callbacks),
        cmocka_unit_test(should_stop_uses_the_tokenizer),
        cmocka_unit_test(a_run_within_a_run),
        cmocka_unit_test(tensor_files),
        cmocka_unit_test(wrong_tensors),
        cmocka_unit_test(writing),
        cmocka_unit_test(converting),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
