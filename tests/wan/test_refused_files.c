/* SPDX-License-Identifier: Apache-2.0 */
/* A model from files of other origins than diffusers. Files that make no model are refused with a sentence that says
 * what to do. A saved run knows its files. Failed allocations are survived. */
#include "support/engine/model_parts.h"
#include "support/fixture.h"
#include "support/folder_fixture.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void files_that_make_no_model_are_refused(void **state)
{
    (void)state;
    const ith_model_files none = ITH_MODEL_FILES_INIT;
    ith_model_files f = none;
    make_original("", NONE, 1);
    assert_files_refused(none, ITH_ERR_ARGUMENT, "no model is named");
    f.dit = f.dit_high = f.dit_low = "x";
    assert_files_refused(f, ITH_ERR_ARGUMENT, "leave dit out");
    f = none, f.dit_high = "x";
    assert_files_refused(f, ITH_ERR_ARGUMENT, "dit_low is missing");
    f = none, f.dit_low = "x";
    assert_files_refused(f, ITH_ERR_ARGUMENT, "dit_high is missing");
    f.dit = "x";
    assert_files_refused(f, ITH_ERR_ARGUMENT, "leave dit out");
    f = none, f.dit = "nowhere.safetensors";
    assert_files_refused(f, ITH_ERR_IO, "nowhere.safetensors");
    f = none, f.dit = "wan.pth";
    assert_files_refused(f, ITH_ERR_UNSUPPORTED, "PyTorch pickle");
    f = none, f.dit = MODEL "/transformer";
    assert_files_refused(f, ITH_ERR_ARGUMENT, "text_encoder is needed besides");
    f.vae = MODEL "/vae";
    assert_files_refused(f, ITH_ERR_ARGUMENT, "text_encoder is needed besides");
    f.vae = NULL, f.text_encoder = MODEL "/text_encoder";
    assert_files_refused(f, ITH_ERR_ARGUMENT, "vae is needed besides");
    f.text_encoder = NULL;
    f.vae = MODEL "/transformer";
    assert_files_refused(f, ITH_ERR_UNSUPPORTED, "it holds a transformer");
    f.vae = folder;
    assert_files_refused(f, ITH_ERR_IO, "holds no weight files");
    f.vae = MODEL "/vae", f.text_encoder = MODEL "/vae";
    assert_files_refused(f, ITH_ERR_UNSUPPORTED, "it holds an autoencoder");
    char text[512];
    snprintf(text, sizeof text, "%s/text", folder);
    f.text_encoder = text;
    temporary_require(remove(in_folder("text/spiece.model")) == 0, "spiece.model");
    assert_files_refused(f, ITH_ERR_ARGUMENT, "tokenizer is needed");
    f.tokenizer = "nowhere.model";
    assert_files_refused(f, ITH_ERR_IO, "nowhere.model");
}

/* A folder that is named for a component, and has several files, leaves open which is meant. */
static void a_folder_of_several_files_is_refused_for_a_component(void **state)
{
    (void)state;
    ith_model_files f = ITH_MODEL_FILES_INIT;
    make_original("", NONE, 1);
    copy_file(MODEL "/vae/diffusion_pytorch_model.safetensors", "vae/other.safetensors");
    char vae[512];
    snprintf(vae, sizeof vae, "%s/vae", folder);
    f.folder = MODEL, f.vae = vae;
    assert_files_refused(f, ITH_ERR_ARGUMENT, "vae holds 2 weight files, ");
}

/* If a component has one file and an index of shards, transformers takes the file, and diffusers the index. So a
 * damaged index matters to diffusers alone. */
static void a_file_beside_an_index_is_taken_as_the_reference_does(void **state)
{
    (void)state;
    static const char *const parts[] = {"text_encoder", "transformer", "transformer_2", "vae"};
    static const char *const variants[] = {NULL, "fp16"};
    char name[256], index[256], path[512];
    for (int i = 0; i < 8; i++) {
        const char *part = parts[i % 4], *variant = variants[i / 4],
                   *stem = i % 4 ? "diffusion_pytorch_model" : "model";
        for (int other = 0; other < 4; other++) {
            snprintf(name, sizeof name, "%s%s%s", other ? "diffusion_pytorch_model" : "model",
                     variant && other == i % 4 ? "." : "", variant && other == i % 4 ? variant : "");
            make_part(parts[other], parts[other], name, name_as_is, "", NONE, 1);
        }
        make_folder("scheduler");
        copy_file(MODEL "/text_encoder/config.json", "text_encoder/config.json");
        copy_file(MODEL "/model_index.json", "model_index.json");
        copy_file(MODEL "/scheduler/scheduler_config.json", "scheduler/scheduler_config.json");
        snprintf(index, sizeof index, "%s/%s.safetensors.index.%s%sjson", part, stem, variant ? variant : "",
                 variant ? "." : "");
        temporary_write(in_folder(index), "{", 1);
        ith_model_files f = ITH_MODEL_FILES_INIT;
        f.folder = folder, f.variant = variant, f.tokenizer = MODEL "/tokenizer";
        if (i % 4)
            assert_files_refused(f, ITH_ERR_FORMAT, strrchr(index, '/'));
        else
            video_of(&f);
        if (i == 0) { /* the same folder, named for the component alone */
            snprintf(path, sizeof path, "%s/text_encoder", folder);
            f.folder = MODEL, f.text_encoder = path;
            video_of(&f);
        }
        folder_tear_down(state);
        folder_set_up(state);
    }
}

/* An all-in-one file whose transformer is of another model can still give the autoencoder. */
static void the_autoencoder_of_another_model_is_taken(void **state)
{
    (void)state;
    static const float number = 1;
    package *p = calloc(1, sizeof *p);
    package_add(p, MODEL "/vae", name_original_vae, "vae.", NONE);
    p->tensors[p->count++] = (ith_tensor){.struct_size = sizeof(ith_tensor),
                                          .name = "model.diffusion_model.img_emb.proj.0.weight",
                                          .dtype = ITH_F32,
                                          .dims = 1,
                                          .shape = {1},
                                          .data = &number,
                                          .bytes = sizeof number};
    package_write(p, in_folder("all.safetensors"), 0, 1);
    package_free(p);
    char path[512];
    snprintf(path, sizeof path, "%s/all.safetensors", folder);
    ith_model_files f = ITH_MODEL_FILES_INIT;
    f.folder = MODEL, f.vae = path;
    video_of(&f);
    f.vae = NULL, f.dit = path;
    assert_files_refused(f, ITH_ERR_UNSUPPORTED, "it holds a");
}

/* Only transformers are told apart by the noise in their names. */
static void words_of_noise_in_names_of_other_parts_mean_nothing(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("", NONE, 1);
    temporary_require(
        rename(in_folder("vae/wan_vae.safetensors"), temporary_path(folder, "vae/low_vram.safetensors")) == 0,
        "rename");
    const frame got = video_of_folder(folder);
    assert_same(&got, &wanted);
}

/* Two experts that are named stay two if the folder gives the other parts. */
static void a_folder_completes_two_named_experts(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_part("vae", "vae", "wan_vae", name_original_vae, "", NONE, 1);
    make_part("text_encoder", "text", "umt5", name_original_text, "", NONE, 1);
    copy_file(MODEL "/tokenizer/spiece.model", "text/spiece.model");
    ith_model_files f = ITH_MODEL_FILES_INIT;
    f.folder = folder, f.dit_high = MODEL "/transformer", f.dit_low = MODEL "/transformer_2";
    const frame got = video_of(&f);
    assert_same(&got, &wanted);
}

/* One expert without the other would make noise: it cannot be the only transformer. */
static void a_folder_with_one_of_two_experts_is_refused(void **state)
{
    (void)state;
    ith_model_files f = ITH_MODEL_FILES_INIT;
    make_original("", NONE, 1);
    f.folder = folder;
    temporary_require(remove(in_folder("low_noise_model/x.safetensors")) == 0, "low_noise_model");
    assert_files_refused(f, ITH_ERR_ARGUMENT, "high_noise_model/x.safetensors is by its name one of two experts");
}

/* If the given name is a folder above or below a checkpoint, a file, or no path, the message names the folder that
 * works. */
static void a_wrong_folder_is_told_with_the_right_one(void **state)
{
    (void)state;
    ith_model_files f = ITH_MODEL_FILES_INIT;
    f.folder = MODEL "/..";
    assert_files_refused(f, ITH_ERR_IO, MODEL "/.. holds no model_index.json, and " MODEL "/../shapes does");
    f.folder = MODEL "/transformer";
    assert_files_refused(f, ITH_ERR_IO, "/transformer holds no model_index.json, and /");
    f.folder = MODEL "/tokenizer/";
    assert_files_refused(f, ITH_ERR_IO, "/models/shapes does: name that folder");
    f.folder = MODEL "/model_index.json";
    assert_files_refused(f, ITH_ERR_IO, "model_index.json is a file, and a model is a folder");
    f.folder = "Wan-AI/Wan2.2-T2V-A14B-Diffusers";
    assert_files_refused(f, ITH_ERR_IO, "must be downloaded first");
    static const char *const others[] = {"Wan-AI/", "Wan-AI/Wan2.2-T2V-A14B-Diffusers/vae", "golden/nowhere"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        f.folder = others[i]; /* no name of a repository */
        assert_files_refused(f, ITH_ERR_IO, "No such file");
        assert_null(strstr(ith_context_error(context), "downloaded"));
    }
    f.folder = "/nowhere/model";
    assert_files_refused(f, ITH_ERR_IO, "cannot open /nowhere/model for its model_index.json: No such file");
    f.folder = MODEL "/..", f.vae = MODEL "/vae", f.text_encoder = MODEL "/text_encoder";
    assert_files_refused(f, ITH_ERR_IO, MODEL "/.. holds no model_index.json, and " MODEL "/../shapes does");
    /* If files are given for all other parts, a folder above a checkpoint can still give the tokenizer. */
    f.folder = MODEL "/..", f.dit = MODEL "/transformer", f.vae = MODEL "/vae", f.text_encoder = MODEL "/text_encoder";
    video_with(&f, (double)NAN, NULL);
}

/* Without its model_index.json a checkpoint of diffusers is damaged. It is not searched for weight files, which would
 * make a model without the fields of its configurations. */
static void a_checkpoint_without_its_index_is_refused(void **state)
{
    (void)state;
    static const char *const parts[] = {"transformer", "transformer_2", "vae", "text_encoder"};
    ith_model_files f = ITH_MODEL_FILES_INIT;
    for (int i = 0; i < 4; i++)
        make_part(parts[i], parts[i], i == 3 ? "model" : "diffusion_pytorch_model", name_as_is, "", NONE, 1);
    f.folder = folder, f.tokenizer = MODEL "/tokenizer";
    assert_files_refused(f, ITH_ERR_IO, "model_index.json");
}

/* Sizes that neither a config.json nor the tensors give. */
static void unknown_sizes_are_refused(void **state)
{
    (void)state;
    ith_model_files f = ITH_MODEL_FILES_INIT;
    char dit[512], vae[512];
    make_original("", NONE, 1);
    snprintf(dit, sizeof dit, "%s/both_experts", folder); /* a name that is for no expert alone */
    snprintf(vae, sizeof vae, "%s/vae", folder);
    temporary_require(symlink("high_noise_model", dit) == 0, dit);
    f.folder = MODEL, f.dit_high = f.dit_low = dit;
    static const struct {
        const char *config;
        ith_status status;
        const char *words;
    } cases[] = {
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 7}", ITH_ERR_FORMAT, "7 heads"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 0}", ITH_ERR_FORMAT, "num_heads"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 64}", ITH_ERR_FORMAT, "64 heads"}, /* of three numbers */
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"eps\": 1}", ITH_ERR_FORMAT, "eps must be between"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"dim\": 64}", ITH_ERR_FORMAT, "dim is 64"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"model_type\": \"vace\"}", ITH_ERR_UNSUPPORTED, "vace"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"qk_norm\": false}", ITH_ERR_UNSUPPORTED, "qk_norm"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"num_layers\": 7}", ITH_ERR_FORMAT,
         "num_layers is 7, but 6 in the weights"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"ffn_dim\": 512}", ITH_ERR_FORMAT, "ffn_dim is 512"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"in_dim\": 36}", ITH_ERR_FORMAT, "in_dim is 36"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"out_dim\": 48}", ITH_ERR_FORMAT, "out_dim is 48"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"freq_dim\": 8}", ITH_ERR_FORMAT, "freq_dim is 8"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"text_dim\": 8}", ITH_ERR_FORMAT, "text_dim is 8"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"text_len\": 226}", ITH_ERR_UNSUPPORTED,
         "text_len is 226"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"patch_size\": [1, 2, 4]}", ITH_ERR_UNSUPPORTED,
         "patch_size is [1,2,4]"},
        {"{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"cross_attn_norm\": false}", ITH_ERR_FORMAT,
         "cross_attn_norm is false"},
        {"{", ITH_ERR_FORMAT, "config.json"},
        {"{}", ITH_ERR_FORMAT, "not a multiple of 128"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        temporary_write(in_folder("high_noise_model/config.json"), cases[i].config, strlen(cases[i].config));
        assert_files_refused(f, cases[i].status, cases[i].words);
    }
    const char *right =
        "{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"dim\": 192, \"eps\": 1e-06, "
        "\"model_type\": \"t2v\", \"ffn_dim\": 768, \"in_dim\": 16, \"out_dim\": 16, \"num_layers\": 6, "
        "\"freq_dim\": 256, \"text_dim\": 128, \"text_len\": 512, \"patch_size\": [1, 2, 2], "
        "\"cross_attn_norm\": true}";
    temporary_write(in_folder("high_noise_model/config.json"), right, strlen(right));
    ith_model_files high = f;
    const frame got = video_of(&high);
    high.dit_high = high.dit_low = MODEL "/transformer";
    const frame wanted = video_of(&high);
    assert_same(&got, &wanted);
}

static void a_number_that_no_component_has_is_no_error(void **state)
{
    (void)state;
    static const int numbers[] = {-1, 4, INT_MAX - 1, INT_MAX};
    ith_pipeline *pipeline = NULL;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = MODEL, files.dit = MODEL "/transformer";
    check(context, ith_pipeline_open_files(context, &files, &pipeline));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ith_model_part part = ITH_MODEL_PART_INIT;
        part.name = "";
        check(context, ith_pipeline_part(pipeline, numbers[i], &part));
        assert_null(part.name);
    }
    ith_pipeline_close(&pipeline);
}

/* ---- Saved runs -------------------------------------------------------------------------------------------------- */

/* Runs the model whose experts are these with options for one small frame. */
static ith_status run_experts(const char *high, const char *low, const char *save, const char *resume)
{
    ith_pipeline *pipeline = NULL;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    files.folder = MODEL, files.dit_high = high, files.dit_low = low;
    if (save)
        options.prompt = "a circle", options.frames = 1, options.height = options.width = SIDE, options.steps = 2;
    if (save)
        options.boundary = 0.6, options.precision = ITH_PRECISION_F32;
    options.threads = 1, options.checkpoint_file = save, options.resume_file = resume;
    check(context, ith_pipeline_open_files(context, &files, &pipeline));
    const ith_status status = ith_pipeline_generate(pipeline, NULL, &options, NULL);
    ith_pipeline_close(&pipeline);
    return status;
}

/* Experts that are swapped, or another pair of equal experts, are another model for a saved run. */
static void a_saved_run_knows_the_places_of_its_files(void **state)
{
    (void)state;
    static const char one[] = MODEL "/transformer", other[] = MODEL "/transformer_2";
    static const char *const pairs[][4] = {{one, other, other, one}, {one, one, other, other}};
    const char *path = in_folder("run.safetensors");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(run_experts(pairs[i][0], pairs[i][1], path, NULL), ITH_OK);
        assert_int_equal(run_experts(pairs[i][0], pairs[i][1], NULL, path), ITH_OK);
        assert_int_equal(run_experts(pairs[i][2], pairs[i][3], NULL, path), ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "began with other files of the model"));
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static ith_status open_and_check(ith_context *poor, void *user)
{
    ith_pipeline *pipeline = NULL;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = user;
    ith_status status = ith_pipeline_open_files(poor, &files, &pipeline);
    ith_model_part part = ITH_MODEL_PART_INIT;
    if (!status)
        status = ith_pipeline_check(pipeline);
    if (!status)
        status = ith_pipeline_part(pipeline, 3, &part);
    ith_pipeline_close(&pipeline);
    return status;
}

static void failed_allocations_are_survived(void **state)
{
    (void)state;
    make_original("", NONE, 2);
    assert_true(refuse_every_allocation(open_and_check, folder, 7) > 20);
}

static ith_status open_variant(ith_context *poor, void *user)
{
    ith_pipeline *pipeline = NULL;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = user, files.variant = "fp16";
    ith_status status = ith_pipeline_open_files(poor, &files, &pipeline);
    if (!status)
        status = ith_pipeline_check(pipeline);
    ith_pipeline_close(&pipeline);
    return status;
}

/* A lack of memory does not look like a component that has no files of the variant. The autoencoder alone has some. */
static void failed_allocations_for_a_variant_are_survived(void **state)
{
    (void)state;
    static const char *const parts[] = {"transformer", "transformer_2", "vae", "text_encoder"};
    static const char *const names[] = {"diffusion_pytorch_model", "diffusion_pytorch_model",
                                        "diffusion_pytorch_model.fp16", "model"};
    for (int i = 0; i < 4; i++)
        make_part(parts[i], parts[i], names[i], name_as_is, "", NONE, 1);
    make_folder("scheduler"), make_folder("tokenizer");
    copy_file(MODEL "/text_encoder/config.json", "text_encoder/config.json");
    copy_file(MODEL "/model_index.json", "model_index.json");
    copy_file(MODEL "/scheduler/scheduler_config.json", "scheduler/scheduler_config.json");
    copy_file(MODEL "/tokenizer/spiece.model", "tokenizer/spiece.model");
    assert_true(refuse_every_allocation(open_variant, folder, 1) > 20);
}

/* A lack of memory does not look like a folder that is refused. */
static void a_lack_of_memory_is_told_from_a_wrong_folder(void **state)
{
    (void)state;
    ith_status status = ITH_ERR_MEMORY;
    for (long refuse = 1; status == ITH_ERR_MEMORY; refuse++) {
        failing_allocator allocator;
        ith_context *poor = failing_context(&allocator, refuse);
        ith_pipeline *pipeline = NULL;
        ith_model_files files = ITH_MODEL_FILES_INIT;
        files.folder = MODEL "/transformer";
        assert_non_null(poor);
        status = ith_pipeline_open_files(poor, &files, &pipeline);
        if (status != (atomic_load(&allocator.calls) > refuse ? ITH_ERR_MEMORY : ITH_ERR_IO))
            fail_msg("allocation %ld refused: %s: %s", refuse, ith_status_name(status), ith_context_error(poor));
        ith_context_destroy(&poor);
    }
}

#define test(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        test(files_that_make_no_model_are_refused),
        test(a_folder_of_several_files_is_refused_for_a_component),
        test(a_file_beside_an_index_is_taken_as_the_reference_does),
        test(the_autoencoder_of_another_model_is_taken),
        test(words_of_noise_in_names_of_other_parts_mean_nothing),
        test(a_folder_completes_two_named_experts),
        test(a_folder_with_one_of_two_experts_is_refused),
        test(a_wrong_folder_is_told_with_the_right_one),
        test(a_checkpoint_without_its_index_is_refused),
        test(unknown_sizes_are_refused),
        test(a_saved_run_knows_the_places_of_its_files),
        test(a_number_that_no_component_has_is_no_error),
        test(failed_allocations_are_survived),
        test(failed_allocations_for_a_variant_are_survived),
        test(a_lack_of_memory_is_told_from_a_wrong_folder),
    };
    return cmocka_run_group_tests_name("refused files", tests, NULL, NULL);
}
