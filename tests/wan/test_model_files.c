/* SPDX-License-Identifier: Apache-2.0 */
/* A model from files of other origins than diffusers. The same weights under other names make the same video, bit for
 * bit. Files that make no model are refused with a sentence that says what to do. */
#include "support/engine/repackage.h"
#include "support/fixture.h"
#include "support/folder_fixture.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <ithaca/wan.h>

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL "../models/shapes"
#define CLIP "golden/i2v21" /* a model of Wan 2.1 with an image encoder */
#define SIDE 16
#define NONE ITH_DTYPE_NONE

/* ---- Making files ------------------------------------------------------------------------------------------------ */

static const char *in(const char *name)
{
    return temporary_path(folder, name);
}

static void make_folder(const char *name)
{
    temporary_require(mkdir(in(name), 0700) == 0, name);
}

static void copy_file(const char *from, const char *to)
{
    size_t bytes = 0;
    char *data = temporary_read(from, &bytes);
    temporary_write(in(to), data, bytes);
    free(data);
}

/* Writes a component of a model into the new folder `to`, as the file NAME, or as NAME-0000i-of-0000n in `parts`
 * shards. Writes its config.json too, unless its sizes follow from its tensors. */
static void make_part_of(const char *model, const char *part, const char *to, const char *name, rename_fn *rename,
                         const char *prefix, ith_dtype type, int parts)
{
    char source[256], file[512];
    package *p = calloc(1, sizeof *p);
    snprintf(source, sizeof source, "%s/%s", model, part);
    package_add(p, source, rename, prefix, type);
    make_folder(to);
    for (int i = 0; i < parts; i++) {
        if (parts > 1)
            snprintf(file, sizeof file, "%s/%s-%05d-of-%05d.safetensors", to, name, i + 1, parts);
        else
            snprintf(file, sizeof file, "%s/%s.safetensors", to, name);
        package_write(p, in(file), i, parts);
    }
    package_free(p);
    if (strcmp(part, "text_encoder") != 0) {
        snprintf(source, sizeof source, "%s/%s/config.json", model, part);
        snprintf(file, sizeof file, "%s/config.json", to);
        copy_file(source, file);
    }
}

static void make_part(const char *part, const char *to, const char *name, rename_fn *rename, const char *prefix,
                      ith_dtype type, int parts)
{
    make_part_of(MODEL, part, to, name, rename, prefix, type, parts);
}

/* All components, with the names of the original code and these prefixes, as in a repository of original weights. */
static void make_original(const char *dit_prefix, ith_dtype type, int parts)
{
    make_part("transformer", "high_noise_model", "x", name_original_dit, dit_prefix, type, parts);
    make_part("transformer_2", "low_noise_model", "x", name_original_dit, dit_prefix, type, parts);
    make_part("vae", "vae", "wan_vae", name_original_vae, "", type, parts);
    make_part("text_encoder", "text", "umt5", name_original_text, "", type, parts);
    copy_file(MODEL "/tokenizer/spiece.model", "text/spiece.model");
}

/* ---- Making videos ----------------------------------------------------------------------------------------------- */

typedef struct frame {
    uint8_t rgb[SIDE * SIDE * 3];
} frame;

static ith_status keep_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    assert_true(index == 0 && height == SIDE && width == SIDE);
    memcpy(((frame *)user)->rgb, rgb, sizeof(frame));
    return ITH_OK;
}

/* Returns the only frame of a video that both experts make, or, with `boundary` 0, the first expert alone. */
static frame video_with(const ith_model_files *files, double boundary, const ith_image *image)
{
    ith_pipeline *pipeline = NULL;
    frame out = {{0}};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A red circle moves to the right.";
    options.negative = "blur";
    options.frames = 1, options.height = options.width = SIDE, options.steps = 2, options.shift = 1;
    options.boundary = boundary, options.image = image;
    options.precision = ITH_PRECISION_F32, options.threads = 1;
    options.on_frame = keep_frame, options.user = &out;
    check(context, ith_pipeline_open_files(context, files, &pipeline));
    check(context, ith_pipeline_check(pipeline));
    check(context, ith_pipeline_generate(pipeline, NULL, &options, NULL));
    ith_pipeline_close(&pipeline);
    assert_int_equal(memory_of(context).current_bytes, 0);
    return out;
}

static frame video_of(const ith_model_files *files)
{
    return video_with(files, 0.6, NULL);
}

static frame video_of_folder(const char *path)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = path;
    return video_of(&files);
}

static void assert_same(const frame *a, const frame *b)
{
    int lit = 0;
    for (size_t i = 0; i < sizeof a->rgb; i++)
        lit += a->rgb[i] != a->rgb[0];
    assert_true(lit > 0);
    assert_memory_equal(a, b, sizeof *a);
}

/* ---- The same weights under other names -------------------------------------------------------------------------- */

static void a_folder_of_original_weights_gives_the_same_bits(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("", NONE, 1);
    const frame got = video_of_folder(folder);
    assert_same(&got, &wanted);
    temporary_require(remove(in("text/spiece.model")) == 0, "spiece.model");
    copy_file("golden/transformers_5/tokenizer.json", "text/tokenizer.json");
    const frame with_json = video_of_folder(folder);
    assert_same(&with_json, &wanted);
}

static void named_files_give_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        const char *dit_high, *dit_low, *vae, *text;
    } forms[] = {
        {"high_noise_model/x.safetensors", "low_noise_model/x.safetensors", "vae/wan_vae.safetensors",
         "text/umt5.safetensors"},
        {"high_noise_model", "low_noise_model", "vae", "text"},
    };
    const frame wanted = video_of_folder(MODEL);
    make_original("model.diffusion_model.", NONE, 1);
    for (size_t i = 0; i < 2; i++) {
        char names[4][512];
        snprintf(names[0], 512, "%s/%s", folder, forms[i].dit_high);
        snprintf(names[1], 512, "%s/%s", folder, forms[i].dit_low);
        snprintf(names[2], 512, "%s/%s", folder, forms[i].vae);
        snprintf(names[3], 512, "%s/%s", folder, forms[i].text);
        ith_model_files files = ITH_MODEL_FILES_INIT;
        files.dit_high = names[0], files.dit_low = names[1], files.vae = names[2], files.text_encoder = names[3];
        files.tokenizer = i ? MODEL "/tokenizer/spiece.model" : MODEL "/tokenizer";
        const frame got = video_of(&files);
        assert_same(&got, &wanted);
    }
}

static void shards_give_the_same_bits(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("diffusion_model.", NONE, 3);
    const frame got = video_of_folder(folder);
    assert_same(&got, &wanted);
}

/* A checkpoint in the diffusers layout whose parts are replaced one by one. */
static void files_replace_those_of_a_checkpoint(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("", NONE, 1);
    const char *members[] = {"high_noise_model", "low_noise_model", "vae", "text"};
    for (int i = 1; i < 4; i++) {
        char names[4][512];
        for (int n = 0; n < 4; n++)
            snprintf(names[n], 512, "%s/%s", folder, members[n]);
        ith_model_files files = ITH_MODEL_FILES_INIT;
        files.folder = MODEL;
        if (i == 1)
            files.dit_high = names[0], files.dit_low = names[1];
        else
            *(i == 2 ? &files.vae : &files.text_encoder) = names[i];
        const frame got = video_of(&files);
        assert_same(&got, &wanted);
    }
}

/* 16-bit numbers under the names of diffusers and under original names. */
static void half_precision_gives_the_same_bits(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_F16, ITH_BF16};
    for (int i = 0; i < 2; i++) {
        make_original("", types[i], 1);
        const frame original = video_of_folder(folder);
        folder_tear_down(state);
        folder_set_up(state);
        make_part("transformer", "transformer", "diffusion_pytorch_model", name_as_is, "", types[i], 1);
        make_part("transformer_2", "transformer_2", "diffusion_pytorch_model", name_as_is, "", types[i], 1);
        make_part("vae", "vae", "diffusion_pytorch_model", name_as_is, "", types[i], 1);
        make_part("text_encoder", "text_encoder", "model", name_as_is, "", types[i], 1);
        make_folder("scheduler"), make_folder("tokenizer");
        copy_file(MODEL "/text_encoder/config.json", "text_encoder/config.json");
        copy_file(MODEL "/model_index.json", "model_index.json");
        copy_file(MODEL "/scheduler/scheduler_config.json", "scheduler/scheduler_config.json");
        copy_file(MODEL "/tokenizer/spiece.model", "tokenizer/spiece.model");
        const frame diffusers = video_of_folder(folder);
        assert_same(&original, &diffusers);
        folder_tear_down(state);
        folder_set_up(state);
    }
}

/* Adds the tokenizer's file as a tensor, as in Comfy's text encoders. */
static void add_tokenizer(package *p, const char *name)
{
    size_t bytes = 0;
    char *data = temporary_read(MODEL "/tokenizer/spiece.model", &bytes);
    p->owned[p->count] = data;
    p->tensors[p->count++] = (ith_tensor){.struct_size = sizeof(ith_tensor),
                                          .name = name,
                                          .dtype = ITH_U8,
                                          .dims = 1,
                                          .shape = {(int64_t)bytes},
                                          .data = data,
                                          .bytes = (int64_t)bytes};
}

/* An all-in-one file, which has the tokenizer in it, gives the bits of its components in files of their own. The
 * autoencoder's mean and deviation are Wan 2.1's in both. */
static void an_all_in_one_file_gives_the_same_bits(void **state)
{
    (void)state;
    package *all = calloc(1, sizeof *all), *vae = calloc(1, sizeof *vae), *text = calloc(1, sizeof *text);
    package_add(all, MODEL "/transformer", name_original_dit, "model.diffusion_model.", NONE);
    package_add(all, MODEL "/vae", name_original_vae, "vae.", NONE);
    package_add(all, MODEL "/text_encoder", name_as_is, "text_encoders.umt5xxl.transformer.", NONE);
    add_tokenizer(all, "text_encoders.umt5xxl.transformer.spiece_model");
    make_folder("all"), make_folder("vae"), make_folder("text");
    package_write(all, in("all/all.safetensors"), 0, 1);
    copy_file(MODEL "/transformer/config.json", "all/config.json");
    package_add(vae, MODEL "/vae", name_original_vae, "", NONE);
    package_write(vae, in("vae/vae.safetensors"), 0, 1);
    package_add(text, MODEL "/text_encoder", name_llama_text, "", NONE);
    add_tokenizer(text, "spiece_model");
    package_write(text, in("text/text.safetensors"), 0, 1);
    package_free(all), package_free(vae), package_free(text);
    ith_model_files files = ITH_MODEL_FILES_INIT;
    char names[3][512];
    snprintf(names[0], 512, "%s/all/all.safetensors", folder);
    snprintf(names[1], 512, "%s/vae/vae.safetensors", folder);
    snprintf(names[2], 512, "%s/text/text.safetensors", folder);
    files.dit = names[0];
    const frame whole = video_with(&files, 0, NULL);
    files.dit = MODEL "/transformer", files.vae = names[1], files.text_encoder = names[2];
    const frame parts = video_with(&files, 0, NULL);
    assert_same(&whole, &parts);
}

static void assert_refused(ith_model_files files, ith_status wanted, const char *words)
{
    ith_pipeline *pipeline = NULL;
    ith_status status = ith_pipeline_open_files(context, &files, &pipeline);
    if (!status)
        status = ith_pipeline_check(pipeline);
    if (status != wanted || !strstr(ith_context_error(context), words))
        fail_msg("wanted %s with '%s', got %s: %s", ith_status_name(wanted), words, ith_status_name(status),
                 status ? ith_context_error(context) : "");
    ith_pipeline_close(&pipeline);
    assert_int_equal(memory_of(context).current_bytes, 0);
}

/* Components that have weights of the variant take them. The autoencoder has none, and takes its usual weights. */
static void a_variant_is_taken(void **state)
{
    (void)state;
    static const char *const dits[] = {"transformer", "transformer_2"};
    frame seen[2];
    ith_model_files files = ITH_MODEL_FILES_INIT;
    for (int variant = 0; variant < 2; variant++) {
        for (int i = 0; i < 2; i++)
            make_part(dits[i], dits[i], variant ? "diffusion_pytorch_model.fp16" : "diffusion_pytorch_model",
                      name_as_is, "", ITH_F16, 1);
        make_part("text_encoder", "text_encoder", variant ? "model.fp16" : "model", name_as_is, "", ITH_F16, 1);
        make_part("vae", "vae", "diffusion_pytorch_model", name_as_is, "", NONE, 1);
        make_folder("scheduler"), make_folder("tokenizer");
        copy_file(MODEL "/text_encoder/config.json", "text_encoder/config.json");
        copy_file(MODEL "/model_index.json", "model_index.json");
        copy_file(MODEL "/scheduler/scheduler_config.json", "scheduler/scheduler_config.json");
        copy_file(MODEL "/tokenizer/spiece.model", "tokenizer/spiece.model");
        files.folder = folder, files.variant = variant ? "fp16" : NULL;
        seen[variant] = video_of(&files);
        if (variant) {
            files.variant = NULL;
            assert_refused(files, ITH_ERR_IO, "but files of the variant 'fp16'");
        }
        folder_tear_down(state);
        folder_set_up(state);
    }
    assert_same(&seen[0], &seen[1]);
}

/* A name without a folder is a file of the working folder. A config.json beside it belongs to it. */
static void a_file_of_the_working_folder_is_taken(void **state)
{
    (void)state;
    char model[PATH_MAX], before[PATH_MAX];
    ith_model_files files = ITH_MODEL_FILES_INIT;
    temporary_require(realpath(MODEL, model) && getcwd(before, sizeof before), MODEL);
    files.folder = model, files.dit_high = files.dit_low = MODEL "/transformer";
    const frame wanted = video_of(&files);
    make_original("", NONE, 1);
    temporary_require(chdir(in("high_noise_model")) == 0, folder);
    files.dit_high = files.dit_low = "x.safetensors";
    const frame got = video_of(&files);
    temporary_require(chdir(before) == 0, before);
    assert_same(&got, &wanted);
}

/* The tokenizer in the model's folder counts, not the one beside the text encoder. */
static void the_tokenizer_of_the_folder_is_taken(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("", NONE, 1);
    make_folder("tokenizer"), make_folder("text/tokenizer");
    copy_file(MODEL "/tokenizer/spiece.model", "tokenizer/spiece.model");
    temporary_write(in("text/tokenizer/spiece.model"), "x", 1);
    temporary_write(in("text/spiece.model"), "x", 1);
    const frame got = video_of_folder(folder);
    assert_same(&got, &wanted);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void files_that_make_no_model_are_refused(void **state)
{
    (void)state;
    const ith_model_files none = ITH_MODEL_FILES_INIT;
    ith_model_files f = none;
    make_original("", NONE, 1);
    assert_refused(none, ITH_ERR_ARGUMENT, "no model is named");
    f.dit = f.dit_high = f.dit_low = "x";
    assert_refused(f, ITH_ERR_ARGUMENT, "leave dit out");
    f = none, f.dit_high = "x";
    assert_refused(f, ITH_ERR_ARGUMENT, "dit_low is missing");
    f = none, f.dit_low = "x";
    assert_refused(f, ITH_ERR_ARGUMENT, "dit_high is missing");
    f.dit = "x";
    assert_refused(f, ITH_ERR_ARGUMENT, "leave dit out");
    f = none, f.dit = "nowhere.safetensors";
    assert_refused(f, ITH_ERR_IO, "nowhere.safetensors");
    f = none, f.dit = "wan.pth";
    assert_refused(f, ITH_ERR_UNSUPPORTED, "PyTorch pickle");
    f = none, f.dit = MODEL "/transformer";
    assert_refused(f, ITH_ERR_ARGUMENT, "text_encoder is needed besides");
    f.vae = MODEL "/vae";
    assert_refused(f, ITH_ERR_ARGUMENT, "text_encoder is needed besides");
    f.vae = NULL, f.text_encoder = MODEL "/text_encoder";
    assert_refused(f, ITH_ERR_ARGUMENT, "vae is needed besides");
    f.text_encoder = NULL;
    f.vae = MODEL "/transformer";
    assert_refused(f, ITH_ERR_UNSUPPORTED, "it holds a transformer");
    f.vae = folder;
    assert_refused(f, ITH_ERR_IO, "holds no weight files");
    f.vae = MODEL "/vae", f.text_encoder = MODEL "/vae";
    assert_refused(f, ITH_ERR_UNSUPPORTED, "it holds an autoencoder");
    char text[512];
    snprintf(text, sizeof text, "%s/text", folder);
    f.text_encoder = text;
    temporary_require(remove(in("text/spiece.model")) == 0, "spiece.model");
    assert_refused(f, ITH_ERR_ARGUMENT, "tokenizer is needed");
    f.tokenizer = "nowhere.model";
    assert_refused(f, ITH_ERR_IO, "nowhere.model");
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
    assert_refused(f, ITH_ERR_ARGUMENT, "vae holds 2 weight files, ");
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
        temporary_write(in(index), "{", 1);
        ith_model_files f = ITH_MODEL_FILES_INIT;
        f.folder = folder, f.variant = variant, f.tokenizer = MODEL "/tokenizer";
        if (i % 4)
            assert_refused(f, ITH_ERR_FORMAT, strrchr(index, '/'));
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
    package_write(p, in("all.safetensors"), 0, 1);
    package_free(p);
    char path[512];
    snprintf(path, sizeof path, "%s/all.safetensors", folder);
    ith_model_files f = ITH_MODEL_FILES_INIT;
    f.folder = MODEL, f.vae = path;
    video_of(&f);
    f.vae = NULL, f.dit = path;
    assert_refused(f, ITH_ERR_UNSUPPORTED, "it holds a");
}

/* Only transformers are told apart by the noise in their names. */
static void words_of_noise_in_names_of_other_parts_mean_nothing(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("", NONE, 1);
    temporary_require(rename(in("vae/wan_vae.safetensors"), temporary_path(folder, "vae/low_vram.safetensors")) == 0,
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
    temporary_require(remove(in("low_noise_model/x.safetensors")) == 0, "low_noise_model");
    assert_refused(f, ITH_ERR_ARGUMENT, "high_noise_model/x.safetensors is by its name one of two experts");
}

/* If the given name is a folder above or below a checkpoint, a file, or no path, the message names the folder that
 * works. */
static void a_wrong_folder_is_told_with_the_right_one(void **state)
{
    (void)state;
    ith_model_files f = ITH_MODEL_FILES_INIT;
    f.folder = MODEL "/..";
    assert_refused(f, ITH_ERR_IO, MODEL "/.. holds no model_index.json, and " MODEL "/../shapes does");
    f.folder = MODEL "/transformer";
    assert_refused(f, ITH_ERR_IO, "/transformer holds no model_index.json, and /");
    f.folder = MODEL "/tokenizer/";
    assert_refused(f, ITH_ERR_IO, "/models/shapes does: name that folder");
    f.folder = MODEL "/model_index.json";
    assert_refused(f, ITH_ERR_IO, "model_index.json is a file, and a model is a folder");
    f.folder = "Wan-AI/Wan2.2-T2V-A14B-Diffusers";
    assert_refused(f, ITH_ERR_IO, "must be downloaded first");
    static const char *const others[] = {"Wan-AI/", "Wan-AI/Wan2.2-T2V-A14B-Diffusers/vae", "golden/nowhere"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        f.folder = others[i]; /* no name of a repository */
        assert_refused(f, ITH_ERR_IO, "No such file");
        assert_null(strstr(ith_context_error(context), "downloaded"));
    }
    f.folder = "/nowhere/model";
    assert_refused(f, ITH_ERR_IO, "cannot open /nowhere/model for its model_index.json: No such file");
    f.folder = MODEL "/..", f.vae = MODEL "/vae", f.text_encoder = MODEL "/text_encoder";
    assert_refused(f, ITH_ERR_IO, MODEL "/.. holds no model_index.json, and " MODEL "/../shapes does");
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
    assert_refused(f, ITH_ERR_IO, "model_index.json");
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
        temporary_write(in("high_noise_model/config.json"), cases[i].config, strlen(cases[i].config));
        assert_refused(f, cases[i].status, cases[i].words);
    }
    const char *right =
        "{\"_class_name\": \"WanModel\", \"num_heads\": 6, \"dim\": 192, \"eps\": 1e-06, "
        "\"model_type\": \"t2v\", \"ffn_dim\": 768, \"in_dim\": 16, \"out_dim\": 16, \"num_layers\": 6, "
        "\"freq_dim\": 256, \"text_dim\": 128, \"text_len\": 512, \"patch_size\": [1, 2, 2], "
        "\"cross_attn_norm\": true}";
    temporary_write(in("high_noise_model/config.json"), right, strlen(right));
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
    const char *path = in("run.safetensors");
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

/* A model of Wan 2.1 with its image encoder, in a folder and from files that are named one by one. Without an image
 * encoder, or with one for a model that has none, the model is refused. */
static void an_image_encoder_may_be_a_file(void **state)
{
    (void)state;
    static uint8_t pixels[SIDE * SIDE * 3];
    const ith_image image = {sizeof image, pixels, SIDE, SIDE};
    char dit[320], encoder[320];
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        pixels[i] = (uint8_t)(i * 7 % 256);
    make_part_of(CLIP, "transformer", "dit", "x", name_original_dit, "", NONE, 1);
    make_part_of(CLIP, "image_encoder", "clip", "x", name_as_is, "", NONE, 2);
    snprintf(dit, sizeof dit, "%s", in("dit/x.safetensors"));
    snprintf(encoder, sizeof encoder, "%s", in("clip/x-00001-of-00002.safetensors"));
    ith_model_files whole = ITH_MODEL_FILES_INIT, files = ITH_MODEL_FILES_INIT, other = ITH_MODEL_FILES_INIT;
    whole.folder = CLIP, other.folder = MODEL, other.image_encoder = encoder;
    files.dit = dit, files.vae = CLIP "/vae", files.text_encoder = CLIP "/text_encoder";
    files.tokenizer = CLIP "/tokenizer";
    assert_refused(files, ITH_ERR_ARGUMENT, "image_encoder is needed");
    files.image_encoder = encoder;
    const frame a = video_with(&whole, 0, &image), b = video_with(&files, 0, &image);
    assert_same(&a, &b);
    assert_refused(other, ITH_ERR_ARGUMENT, "has no image encoder");
    other.image_encoder = NULL, other.dit = dit; /* beside a checkpoint that has none */
    assert_refused(other, ITH_ERR_ARGUMENT, "image_encoder is needed besides");
    whole.dit = dit; /* beside one that has it */
    const frame c = video_with(&whole, 0, &image);
    assert_same(&a, &c);
}

#define test(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_folder_of_original_weights_gives_the_same_bits),
        test(named_files_give_the_same_bits),
        test(shards_give_the_same_bits),
        test(files_replace_those_of_a_checkpoint),
        test(half_precision_gives_the_same_bits),
        test(an_all_in_one_file_gives_the_same_bits),
        test(a_variant_is_taken),
        test(an_image_encoder_may_be_a_file),
        test(a_file_of_the_working_folder_is_taken),
        test(the_tokenizer_of_the_folder_is_taken),
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
    return cmocka_run_group_tests_name("model files", tests, NULL, NULL);
}
