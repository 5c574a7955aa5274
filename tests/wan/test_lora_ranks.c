/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA files and single weight files on processes that shard the weights, or whose model rank 0 has lent. A run gives
 * the bits of one process, or ends with one sentence on all ranks. */
#include "support/engine/gguf_write.h"
#include "support/engine/golden_run.h"
#include "support/engine/random_lora.h"
#include "support/folder_fixture.h"
#include "support/memory.h"
#include "support/placed_group.h"

#include <ithaca/wan.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL "../models/shapes"

enum { MOST_PROCESSES = 3 };

/* A run on processes of one rank each, on hosts of their own. */
typedef struct case_of {
    ith_model_files files[MOST_PROCESSES]; /* of each process */
    bool lends;                            /* whether ith_model_lend is called */
    const char *dump;
    ith_status status[MOST_PROCESSES];
    char sentences[MOST_PROCESSES][1024];
} case_of;

static ith_generate_options small_run(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A green square moves upwards on a black background.", options.negative = "a red square";
    options.frames = 1, options.height = 48, options.width = 64, options.steps = 4, options.threads = 1;
    options.shift = 3, options.boundary = 0.875, options.guidance[0] = 4, options.guidance[1] = 3;
    options.precision = ITH_PRECISION_F32, options.seed = 3;
    return options;
}

static void be_process(rank_group *g, int rank, void *user)
{
    case_of *c = user;
    ith_pipeline *pipeline = NULL;
    ith_context *own = g->contexts[rank];
    ith_generate_options options = small_run();
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    attention.strategy = ITH_STRATEGY_ULYSSES;
    options.attention = &attention, options.shard_weights = 1, options.dump_file = c->dump;
    ith_comm_set_timeout(g->comms[rank], 60);
    ith_status status = c->lends ? ith_model_lend(g->comms[rank], c->files[rank].folder) : ITH_OK;
    if (!status)
        status = ith_pipeline_open_files(own, &c->files[rank], &pipeline);
    if (!status)
        status = ith_pipeline_generate(pipeline, g->comms[rank], &options, NULL);
    c->status[rank] = status;
    snprintf(c->sentences[rank], sizeof *c->sentences, "%s", status ? ith_context_error(own) : "");
    ith_pipeline_close(&pipeline);
}

static void run_processes(case_of *c, int processes)
{
    rank_group g = {.ranks = processes};
    placed_evenly(1, 1);
    for (int i = 0; i < processes; i++)
        assert_int_equal(ith_context_create(NULL, &g.contexts[i]), ITH_OK);
    assert_int_equal(placed_group_create(g.contexts, processes, g.comms), ITH_OK);
    group_run(&g, be_process, c);
    for (int i = 0; i < processes; i++) {
        ith_comm_destroy(&g.comms[i]);
        ith_context_destroy(&g.contexts[i]);
    }
}

static ith_lora_file lora_at(const char *path, double strength)
{
    ith_lora_file lora = ITH_LORA_FILE_INIT;
    lora.file = path, lora.strength = strength, lora.expert = ITH_LORA_BOTH;
    return lora;
}

/* The diffusers folder with a LoRA. */
static ith_model_files files_of(const char *model, const ith_lora_file *lora)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = model, files.loras = lora, files.lora_count = lora != NULL;
    return files;
}

/* The latents of all steps of a run in one process. */
static ith_tensor_file *run_alone(const ith_model_files *files)
{
    ith_pipeline *pipeline = NULL;
    const ith_generate_options options = small_run();
    check(context, ith_pipeline_open_files(context, files, &pipeline));
    ith_tensor_file *dump = golden_generate(context, pipeline, 1, &options, NULL);
    ith_pipeline_close(&pipeline);
    return dump;
}

/* Runs the case on processes, and compares the latents with the latents of `alone`. */
static void expect_bits(case_of *c, int processes, const ith_tensor_file *alone)
{
    ith_tensor_file *dump = NULL;
    c->dump = temporary_path(folder, "dump.safetensors");
    run_processes(c, processes);
    for (int i = 0; i < processes; i++)
        if (c->status[i])
            fail_msg("process %d of %d: %s", i, processes, c->sentences[i]);
    check(context, ith_tensor_file_open(context, c->dump, &dump));
    const ith_tensor *a = ith_tensor_file_find(alone, "latents"), *b = ith_tensor_file_find(dump, "latents");
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, (size_t)a->bytes);
    ith_tensor_file_close(&dump);
}

/* Fails unless every process ends with this sentence. */
static void expect_refused(case_of *c, int processes, ith_status status, const char *words)
{
    run_processes(c, processes);
    for (int i = 0; i < processes; i++) {
        if (c->status[i] != status || !strstr(c->sentences[i], words))
            fail_msg("process %d: %s: \"%s\" instead of \"%s\"", i, ith_status_name(c->status[i]), c->sentences[i],
                     words);
        assert_string_equal(c->sentences[i], c->sentences[0]);
    }
}

/* On two and three processes: each has all files, or all but the first have the LoRA alone. */
static void a_lora_gives_the_bits_of_one_process(void **state)
{
    (void)state;
    uint64_t seed = 5;
    const char *path = temporary_path(folder, "style.safetensors");
    random_lora_write(context, &seed, path);
    const ith_lora_file lora = lora_at(path, 0.02);
    case_of c = {.files = {files_of(MODEL, &lora), files_of(MODEL, &lora), files_of(MODEL, &lora)}};
    ith_tensor_file *alone = run_alone(&c.files[0]);
    expect_bits(&c, 2, alone);
    expect_bits(&c, 3, alone);
    c.lends = true, c.files[2].folder = "no/such/folder";
    expect_bits(&c, 3, alone);
    c.files[1].folder = "no/such/folder";
    expect_bits(&c, 2, alone);
    expect_bits(&c, 3, alone);
    ith_tensor_file_close(&alone);
}

/* Both transformers are GGUF files of mixed kinds with original names. They replace the folder's transformers, which
 * may be lent. */
static void packed_files_give_the_bits_of_one_process(void **state)
{
    (void)state;
    uint64_t seed = 5;
    const char *names[] = {"high.gguf", "low.gguf"}, *path = temporary_path(folder, "style.safetensors");
    ith_model_files files = files_of(MODEL, NULL);
    size_t bytes = 0;
    char *text = temporary_read(MODEL "/transformer/config.json", &bytes), paths[2][512];
    temporary_write(temporary_path(folder, "config.json"), text, bytes);
    free(text);
    random_lora_write(context, &seed, path);
    const ith_lora_file lora = lora_at(path, 0.02);
    for (int i = 0; i < 2; i++) {
        package *p = calloc(1, sizeof *p);
        package_add(p, i ? MODEL "/transformer_2" : MODEL "/transformer", name_original_dit, "", ITH_BF16);
        for (int64_t t = 0; t < p->count; t++)
            if (p->tensors[t].dims == 2 && strstr(p->tensors[t].name, "blocks.") && p->tensors[t].shape[1] % 32 == 0)
                package_pack(p, t, p->tensors[t].shape[1] % 256 ? ITH_Q8_0 : ITH_Q4_K);
        snprintf(paths[i], sizeof paths[i], "%s", temporary_path(folder, names[i]));
        gguf_write(p, paths[i]);
        package_free(p);
    }
    files.dit_high = paths[0], files.dit_low = paths[1], files.loras = &lora, files.lora_count = 1;
    case_of c = {.files = {files, files, files}};
    ith_tensor_file *alone = run_alone(&files);
    expect_bits(&c, 2, alone);
    c.lends = true, c.files[1].folder = "no/such/folder";
    expect_bits(&c, 2, alone);
    expect_bits(&c, 3, alone);
    ith_tensor_file_close(&alone);
}

/* Processes with a lent model have some files of their own. They are compared, and must be the same. */
static void files_that_differ_are_refused(void **state)
{
    (void)state;
    uint64_t seed = 5;
    char first[512], second[512];
    snprintf(first, sizeof first, "%s", temporary_path(folder, "first.safetensors"));
    snprintf(second, sizeof second, "%s", temporary_path(folder, "second.safetensors"));
    random_lora_write(context, &seed, first);
    random_lora_write(context, &seed, second);
    const ith_lora_file lora = lora_at(first, 0.02), other = lora_at(second, 0.02), weak = lora_at(first, 0.01);
    const ith_model_files theirs[] = {files_of("no/such/folder", &other), files_of("no/such/folder", &weak),
                                      files_of("no/such/folder", NULL), files_of(MODEL, &other)};
    for (int i = 0; i < 4; i++) {
        case_of c = {.files = {files_of(MODEL, &lora), theirs[i]}, .lends = true};
        expect_refused(&c, 2, ITH_ERR_ARGUMENT, "of rank 1 and of rank 0 differ");
    }
}

/* Weights without model_index.json are not sent, and no process waits for them. */
static void a_folder_of_another_layout_is_refused(void **state)
{
    (void)state;
    case_of c = {.files = {files_of(folder, NULL), files_of("no/such/folder", NULL)}, .lends = true};
    expect_refused(&c, 2, ITH_ERR_UNSUPPORTED, "model_index.json");
}

/* Files with names of any length are sent. A folder with the ending of a file is none. */
static void all_names_are_lent(void **state)
{
    (void)state;
    static const char *const entries[] = {"model_index.json", "ithaca.yaml", "scheduler",     "tokenizer",
                                          "text_encoder",     "transformer", "transformer_2", "vae"};
    char model[PATH_MAX], from[PATH_MAX + 32], name[256];
    assert_non_null(realpath(MODEL, model));
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        snprintf(from, sizeof from, "%s/%s", model, entries[i]);
        assert_int_equal(symlink(from, temporary_path(folder, entries[i])), 0);
    }
    snprintf(name, sizeof name, "%0250d.json", 0);
    temporary_write(temporary_path(folder, name), "{}", 2);
    assert_int_equal(mkdir(temporary_path(folder, "earlier.model"), 0777), 0);
    case_of c = {.files = {files_of(folder, NULL), files_of("no/such/folder", NULL)}, .lends = true};
    ith_tensor_file *alone = run_alone(&c.files[0]);
    expect_bits(&c, 2, alone);
    ith_tensor_file_close(&alone);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_lora_gives_the_bits_of_one_process),
        TEST(packed_files_give_the_bits_of_one_process),
        TEST(files_that_differ_are_refused),
        TEST(a_folder_of_another_layout_is_refused),
        TEST(all_names_are_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
