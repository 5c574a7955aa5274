/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of the demo's model with LoRA files, on any number of ranks, for one expert or both. Memory is as predicted. */
#include "support/compare.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/golden_run.h"
#include "support/engine/random_lora.h"
#include "support/fixture.h"
#include "support/refused.h"
#include "support/temporary.h"
#include "wan/run/memory/run_memory.h"
#include "wan/run/pipeline.h"
#include "wan/run/request.h"

#include <ithaca/wan.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_FOLDER "../models/shapes"

static uint64_t seed = 5;

static void write_lora(const char *path)
{
    random_lora_write(context, &seed, path);
}

static ith_status open_with(const ith_lora_file *loras, int64_t count, ith_pipeline **pipeline)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = MODEL_FOLDER, files.loras = loras, files.lora_count = count;
    return ith_pipeline_open_files(context, &files, pipeline);
}

static ith_generate_options small_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A green square moves upwards on a black background.", options.negative = "a red square";
    options.frames = 1, options.height = 48, options.width = 64, options.steps = 4;
    options.precision = ITH_PRECISION_F32, options.seed = 3;
    return options;
}

static ith_lora_file lora_at(const char *path, double strength, ith_lora_expert expert)
{
    ith_lora_file lora = ITH_LORA_FILE_INIT;
    lora.file = path, lora.strength = strength, lora.expert = expert;
    return lora;
}

/* Returns the latents of all steps, [steps, ...], of a run with these LoRA files. The caller closes the file. */
static ith_tensor_file *run(const ith_lora_file *loras, int64_t count, int ranks, int64_t keep_packed,
                            ith_precision precision)
{
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = small_run();
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    attention.strategy = ranks > 1 ? ITH_STRATEGY_ULYSSES : ITH_STRATEGY_SINGLE;
    options.attention = &attention, options.keep_packed = keep_packed, options.precision = precision;
    check(context, open_with(loras, count, &pipeline));
    ith_tensor_file *dump = golden_generate(context, pipeline, ranks, &options, NULL);
    ith_pipeline_close(&pipeline);
    return dump;
}

/* The relative difference of the latents of two runs after step `step`; -1 if the bits of all steps are the same. */
static double difference(const ith_tensor_file *a, const ith_tensor_file *b, int64_t step)
{
    const ith_tensor *x = ith_tensor_file_find(a, "latents"), *y = ith_tensor_file_find(b, "latents");
    const int64_t count = x->bytes / 4 / x->shape[0];
    if (!memcmp(x->data, y->data, (size_t)x->bytes))
        return -1;
    return relative_l2((const float *)x->data + step * count, (const float *)y->data + step * count, count);
}

static void ranks_and_packed_weights_give_the_same_bits(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    char *path = strdup(temporary_path(folder, "style.safetensors")); /* runs below reuse the memory of paths */
    assert_non_null(path);
    write_lora(path);
    const ith_lora_file lora = lora_at(path, 0.02, ITH_LORA_BY_NAME), none = lora_at(path, 0, ITH_LORA_BOTH);
    ith_tensor_file *exact = run(&lora, 1, 1, 0, ITH_PRECISION_F32);
    for (ith_precision precision = ITH_PRECISION_F32; precision <= ITH_PRECISION_BF16; precision++) {
        ith_tensor_file *plain = run(NULL, 0, 1, 0, precision), *one = run(&lora, 1, 1, 0, precision), *other;
        const double change = difference(plain, one, 3);
        assert_true(change > 1e-3 && difference(exact, one, 3) < change / 4);
        other = run(&none, 1, 1, 0, precision);
        assert_true(precision == ITH_PRECISION_BF16 || difference(plain, other, 3) == -1);
        ith_tensor_file_close(&other);
        for (int ranks = 1; ranks <= 4; ranks++) {
            other = run(&lora, 1, ranks, ranks % 3, precision);
            assert_true(difference(one, other, 3) == -1);
            ith_tensor_file_close(&other);
        }
        ith_tensor_file_close(&plain);
        ith_tensor_file_close(&one);
    }
    ith_tensor_file_close(&exact);
    temporary_remove(folder);
    free(path);
}

/* Compares the predicted memory with the peak of a context that has made one run. */
static void check_memory(int64_t keep_packed)
{
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "style.safetensors");
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = small_run();
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    options.frames = 5, options.keep_packed = keep_packed;
    write_lora(path);
    const ith_lora_file lora = lora_at(path, 0.02, ITH_LORA_BOTH);
    check(context, open_with(&lora, 1, &pipeline));
    check(context, engine_generate(context, pipeline, 2, &options, &report));
    const double ratio = (double)report.predicted_bytes / (double)report.peak_bytes;
    print_message("predicted %lld bytes, held %lld\n", (long long)report.predicted_bytes, (long long)report.peak_bytes);
    assert_true(ratio > 0.95 && ratio < 1.05);
    ith_pipeline_close(&pipeline);
    temporary_remove(folder);
}

static void memory_is_predicted(void **state)
{
    (void)state;
    check_memory(ITH_KEEP_AUTO);
}

static void memory_of_packed_weights_is_predicted(void **state)
{
    (void)state;
    check_memory(ITH_KEEP_ALL);
}

static void memory_without_kept_weights_is_predicted(void **state)
{
    (void)state;
    check_memory(ITH_KEEP_NONE);
}

/* The predicted bytes of a run on a host with this much free memory and this number of processes. Checks whether the
 * run keeps merged weights. It is a run in bf16, because in f32 on AMX weights have three parts, and nothing is
 * merged. */
static int64_t settled_bytes(ith_pipeline *pipeline, int64_t free_bytes, int processes, bool keeps)
{
    ith_generate_options asked = small_run();
    const ith_machine_memory memory = {{free_bytes, "are free"}, {free_bytes, "are free"}};
    const ith_team team = {.ranks = 1, .count = 1, .processes = 1, .hosts = 1, .host_processes = processes};
    ith_generate_options options;
    ith_request_parts parts;
    ith_saved_run *saved = NULL;
    int64_t bytes = 0;
    asked.precision = ITH_PRECISION_BF16;
    check(context, ith_request_read(pipeline, context, &asked, true, &options, &parts, &saved));
    check(context, ith_predict_settled(pipeline, context, &options, false, &team, &memory, &bytes));
    assert_int_equal(options.keep_packed, keeps ? ITH_KEEP_AUTO : ITH_KEEP_NONE);
    return bytes;
}

static void merged_weights_are_kept_where_memory_allows(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "style.safetensors");
    ith_pipeline *pipeline = NULL;
    write_lora(path);
    const ith_lora_file lora = lora_at(path, 0.02, ITH_LORA_BOTH);
    check(context, open_with(&lora, 1, &pipeline));
    const ith_generate_options asked = small_run();
    const char *const texts[] = {asked.prompt, asked.negative};
    check(context, ith_pipeline_encode(pipeline, NULL, &asked, texts, 2));
    pipeline->model->vae.levels = 0; /* without texts and frames the transformer's memory is the peak */
    const int64_t kept = settled_bytes(pipeline, INT64_MAX, 1, true), least = settled_bytes(pipeline, 0, 1, false);
    assert_true(kept > least + (1 << 20));
    assert_int_equal(settled_bytes(pipeline, kept / 3 * 4 + 8, 1, true), kept);
    assert_int_equal(settled_bytes(pipeline, kept / 3 * 4 - 8, 1, false), least);
    assert_int_equal(settled_bytes(pipeline, kept / 3 * 4 * 3 + 24, 3, true), kept);
    assert_int_equal(settled_bytes(pipeline, kept / 3 * 4 * 3 - 24, 3, false), least);
    ith_pipeline_close(&pipeline);
    temporary_remove(folder);
}

/* A host lacks a little memory, and its process keeps merged weights without having been asked to. The user cannot
 * leave out an option that was not given, so the advice names other options. */
static void advice_names_options_that_were_given(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "style.safetensors");
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = small_run();
    options.precision = ITH_PRECISION_BF16, options.cfg = ITH_CFG_SEQUENTIAL;
    write_lora(path);
    const ith_lora_file lora = lora_at(path, 0.02, ITH_LORA_BOTH);
    check(context, open_with(&lora, 1, &pipeline));
    check(context, ith_pipeline_resolve(pipeline, &options));
    const ith_team team = {.ranks = 2, .count = 1, .processes = 2, .hosts = 1, .host_processes = 2};
    int64_t bytes = 0;
    check(context, ith_predict(pipeline, context, &options, false, &team, &bytes));
    const ith_memory_balance balance = {
        .bytes = bytes,
        .host_bytes = 2 * bytes,
        .machine = {{INT64_MAX, "are known of"}, {2 * bytes - 2, "are free here"}},
    };
    assert_int_equal(options.keep_packed, ITH_KEEP_AUTO);
    REFUSED_AS(ITH_ERR_MEMORY, context, "in this process would do with height 32, width 48; force",
               ith_check_memory(pipeline, context, &options, false, &team, &balance));
    ith_pipeline_close(&pipeline);
    temporary_remove(folder);
}

/* One expert is in memory at a time, so the memory of the larger expert counts. Here this is the expert with merged
 * weights, whichever it is. */
static void the_larger_expert_counts(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "style.safetensors");
    const ith_lora_expert experts[] = {ITH_LORA_BOTH, ITH_LORA_HIGH, ITH_LORA_LOW};
    int64_t bytes[3], least = 0;
    write_lora(path);
    for (int i = 0; i < 3; i++) {
        ith_pipeline *pipeline = NULL;
        const ith_lora_file lora = lora_at(path, 0.02, experts[i]);
        const ith_generate_options asked = small_run();
        const char *const texts[] = {asked.prompt, asked.negative};
        check(context, open_with(&lora, 1, &pipeline));
        check(context, ith_pipeline_encode(pipeline, NULL, &asked, texts, 2));
        pipeline->model->vae.levels = 0; /* as above */
        bytes[i] = settled_bytes(pipeline, INT64_MAX, 1, true);
        least = settled_bytes(pipeline, 0, 1, false);
        ith_pipeline_close(&pipeline);
    }
    assert_true(bytes[0] > least + (1 << 20));
    for (int i = 1; i < 3; i++)
        if (fabs((double)bytes[i] / (double)bytes[0] - 1) > 1e-3)
            fail_msg("both experts %lld bytes, expert %d alone %lld", (long long)bytes[0], i, (long long)bytes[i]);
    temporary_remove(folder);
}

/* A run that was saved with a LoRA goes on with the same file and strength only, and the message says so. */
static void a_saved_run_needs_its_lora(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    char *saved = strdup(temporary_path(folder, "run.safetensors"));
    const char *path = temporary_path(folder, "style.safetensors");
    assert_non_null(saved);
    write_lora(path);
    for (int i = 0; i < 4; i++) { /* saves; resumes with the LoRA, with another strength, and without the LoRA */
        ith_pipeline *pipeline = NULL;
        ith_generate_options options = small_run();
        const ith_lora_file lora = lora_at(path, i == 2 ? 0.03 : 0.02, ITH_LORA_BOTH);
        options.checkpoint_file = i ? NULL : saved;
        options.resume_file = i ? saved : NULL;
        check(context, open_with(&lora, i < 3, &pipeline));
        if (i < 2)
            check(context, ith_pipeline_generate(pipeline, NULL, &options, NULL));
        else
            REFUSED_AS(ITH_ERR_ARGUMENT, context, "or with other LoRA files or strengths",
                       ith_pipeline_generate(pipeline, NULL, &options, NULL));
        ith_pipeline_close(&pipeline);
    }
    temporary_remove(folder);
    free(saved);
}

/* The first of the four steps belongs to high noise, the last to low noise. */
static void a_lora_may_belong_to_one_expert(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "a_high_noise.safetensors");
    const char *slow = temporary_path(folder, "LowNoise-slow.safetensors");
    write_lora(path);
    write_lora(slow);
    const ith_lora_file high = lora_at(path, 0.02, ITH_LORA_BY_NAME), forced = lora_at(path, 0.02, ITH_LORA_HIGH);
    const ith_lora_file low = lora_at(slow, 0.02, ITH_LORA_BY_NAME), both[] = {high, low};
    ith_tensor_file *plain = run(NULL, 0, 1, 0, ITH_PRECISION_F32), *by_name = run(&high, 1, 1, 0, ITH_PRECISION_F32);
    ith_tensor_file *by_word = run(&forced, 1, 1, 0, ITH_PRECISION_F32);
    ith_tensor_file *late = run(&low, 1, 1, 0, ITH_PRECISION_F32), *all = run(both, 2, 1, 0, ITH_PRECISION_F32);
    assert_true(difference(plain, by_name, 0) > 1e-5);
    assert_true(difference(by_word, by_name, 0) == -1);
    assert_true(difference(plain, late, 0) == 0);
    assert_true(difference(plain, late, 3) > 1e-5);
    assert_true(difference(by_name, all, 0) == 0);
    assert_true(difference(by_name, all, 3) > 1e-5);
    ith_tensor_file_close(&plain), ith_tensor_file_close(&by_name), ith_tensor_file_close(&by_word);
    ith_tensor_file_close(&late), ith_tensor_file_close(&all);
    temporary_remove(folder);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "style.safetensors");
    ith_pipeline *pipeline = NULL;
    write_lora(path);
    ith_lora_file loras[2] = {lora_at(path, 1, ITH_LORA_BOTH), lora_at(path, 1, ITH_LORA_HIGH)};
    REFUSED(context, "named twice", open_with(loras, 2, &pipeline));
    loras[1].expert = 9;
    REFUSED(context, "expert 9", open_with(loras, 2, &pipeline));
    loras[1].file = NULL;
    REFUSED(context, "without a file", open_with(loras, 2, &pipeline));
    loras[0].file = "nowhere.safetensors";
    REFUSED_AS(ITH_ERR_IO, context, "nowhere.safetensors", open_with(loras, 1, &pipeline));
    REFUSED(context, "loras", open_with(NULL, 2, &pipeline));
    loras[0].file = "golden/lora/kohya.safetensors"; /* its size does not fit; the run does not begin */
    check(context, open_with(loras, 1, &pipeline));
    REFUSED_AS(ITH_ERR_FORMAT, context, "another size", ith_pipeline_check(pipeline));
    ith_pipeline_close(&pipeline);
    temporary_remove(folder);
}

/* A LoRA that changes after it was opened ends a run before it begins. */
static void a_changed_lora_is_found(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "style.safetensors");
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = small_run();
    write_lora(path);
    const ith_lora_file lora = lora_at(path, 0.02, ITH_LORA_LOW);
    check(context, open_with(&lora, 1, &pipeline));
    check(context, ith_pipeline_check(pipeline));
    write_lora(path);
    REFUSED_AS(ITH_ERR_IO, context, "style.safetensors", engine_generate(context, pipeline, 1, &options, NULL));
    ith_pipeline_close(&pipeline);
    temporary_remove(folder);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, context_set_up, context_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(ranks_and_packed_weights_give_the_same_bits),
        TEST(memory_is_predicted),
        TEST(memory_of_packed_weights_is_predicted),
        TEST(memory_without_kept_weights_is_predicted),
        TEST(merged_weights_are_kept_where_memory_allows),
        TEST(advice_names_options_that_were_given),
        TEST(the_larger_expert_counts),
        TEST(a_lora_may_belong_to_one_expert),
        TEST(a_saved_run_needs_its_lora),
        TEST(mistakes_are_named),
        TEST(a_changed_lora_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
