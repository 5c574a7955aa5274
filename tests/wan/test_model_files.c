/* SPDX-License-Identifier: Apache-2.0 */
/* A model from files of other origins than diffusers. The same weights under other names make the same video, bit for
 * bit. */
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

#define CLIP "golden/i2v21" /* a model of Wan 2.1 with an image encoder */

/* ---- The same weights under other names -------------------------------------------------------------------------- */

static void a_folder_of_original_weights_gives_the_same_bits(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("", NONE, 1);
    const frame got = video_of_folder(folder);
    assert_same(&got, &wanted);
    temporary_require(remove(in_folder("text/spiece.model")) == 0, "spiece.model");
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

/* For a component, the folder of a model in the layout of diffusers means the component's folder in it. */
static void the_folder_of_a_model_may_be_named_for_its_components(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.dit_high = files.dit_low = files.vae = files.text_encoder = files.tokenizer = MODEL;
    const frame got = video_of(&files);
    assert_same(&got, &wanted);
    static uint8_t pixels[SIDE * SIDE * 3];
    const ith_image image = {sizeof image, pixels, SIDE, SIDE};
    ith_model_files whole = ITH_MODEL_FILES_INIT, parts = ITH_MODEL_FILES_INIT;
    whole.folder = parts.dit = parts.vae = parts.text_encoder = parts.tokenizer = parts.image_encoder = CLIP;
    const frame a = video_with(&whole, 0, &image), b = video_with(&parts, 0, &image);
    assert_same(&a, &b);
    parts.dit = MODEL;
    assert_files_refused(parts, ITH_ERR_ARGUMENT, MODEL " has two experts: name both, with dit_high and dit_low");
    parts.dit = CLIP, parts.image_encoder = MODEL;
    assert_files_refused(parts, ITH_ERR_IO, MODEL " holds no weight files");
}

/* The tokenizer of a repository of original weights. */
static void a_tokenizer_is_found_in_the_folder_that_is_named(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    ith_model_files files = ITH_MODEL_FILES_INIT;
    make_folder("google"), make_folder("google/umt5-xxl");
    copy_file(MODEL "/tokenizer/spiece.model", "google/umt5-xxl/spiece.model");
    files.folder = MODEL, files.tokenizer = folder;
    const frame got = video_of(&files);
    assert_same(&got, &wanted);
    temporary_write(in_folder("tokenizer.json"), "x", 1); /* the folder's own file comes first */
    assert_files_refused(files, ITH_ERR_FORMAT, "tokenizer.json");
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
    package_write(all, in_folder("all/all.safetensors"), 0, 1);
    copy_file(MODEL "/transformer/config.json", "all/config.json");
    package_add(vae, MODEL "/vae", name_original_vae, "", NONE);
    package_write(vae, in_folder("vae/vae.safetensors"), 0, 1);
    package_add(text, MODEL "/text_encoder", name_llama_text, "", NONE);
    add_tokenizer(text, "spiece_model");
    package_write(text, in_folder("text/text.safetensors"), 0, 1);
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
            assert_files_refused(files, ITH_ERR_IO, "but files of the variant 'fp16'");
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
    temporary_require(chdir(in_folder("high_noise_model")) == 0, folder);
    files.dit_high = files.dit_low = "x.safetensors";
    const frame got = video_of(&files);
    temporary_require(chdir(before) == 0, before);
    assert_same(&got, &wanted);
}

/* Copies the small files of the checkpoint MODEL, but not its tokenizer, and makes its transformers and autoencoder. */
static void make_checkpoint_without_tokenizer(void)
{
    make_part("transformer", "transformer", "diffusion_pytorch_model", name_as_is, "", NONE, 1);
    make_part("transformer_2", "transformer_2", "diffusion_pytorch_model", name_as_is, "", NONE, 1);
    make_part("vae", "vae", "diffusion_pytorch_model", name_as_is, "", NONE, 1);
    make_part("text_encoder", "text_encoder", "model", name_as_is, "", NONE, 1);
    make_folder("scheduler");
    copy_file(MODEL "/text_encoder/config.json", "text_encoder/config.json");
    copy_file(MODEL "/model_index.json", "model_index.json");
    copy_file(MODEL "/scheduler/scheduler_config.json", "scheduler/scheduler_config.json");
}

/* A checkpoint without a tokenizer is refused with the name of the option. Its text encoder may come from a file with a
 * tokenizer in it, or beside it. */
static void a_checkpoint_without_a_tokenizer(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    package *text = calloc(1, sizeof *text);
    ith_model_files files = ITH_MODEL_FILES_INIT;
    char name[512];
    make_checkpoint_without_tokenizer(), make_folder("text");
    files.folder = folder;
    assert_files_refused(files, ITH_ERR_IO, "tokenizer is needed (");
    package_add(text, MODEL "/text_encoder", name_as_is, "", NONE);
    package_write(text, in_folder("text/plain.safetensors"), 0, 1);
    add_tokenizer(text, "spiece_model");
    package_write(text, in_folder("text/text.safetensors"), 0, 1);
    package_free(text);
    snprintf(name, sizeof name, "%s/text/text.safetensors", folder);
    files.text_encoder = name;
    const frame embedded = video_of(&files);
    assert_same(&embedded, &wanted);
    snprintf(name, sizeof name, "%s/text/plain.safetensors", folder);
    assert_files_refused(files, ITH_ERR_ARGUMENT, "tokenizer is needed: ");
    copy_file(MODEL "/tokenizer/spiece.model", "text/spiece.model");
    const frame beside = video_of(&files);
    assert_same(&beside, &wanted);
}

/* The tokenizer in the model's folder is taken, not the tokenizer beside the text encoder. */
static void the_tokenizer_of_the_folder_is_taken(void **state)
{
    (void)state;
    const frame wanted = video_of_folder(MODEL);
    make_original("", NONE, 1);
    make_folder("tokenizer"), make_folder("text/tokenizer");
    copy_file(MODEL "/tokenizer/spiece.model", "tokenizer/spiece.model");
    temporary_write(in_folder("text/tokenizer/spiece.model"), "x", 1);
    temporary_write(in_folder("text/spiece.model"), "x", 1);
    const frame got = video_of_folder(folder);
    assert_same(&got, &wanted);
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
    snprintf(dit, sizeof dit, "%s", in_folder("dit/x.safetensors"));
    snprintf(encoder, sizeof encoder, "%s", in_folder("clip/x-00001-of-00002.safetensors"));
    ith_model_files whole = ITH_MODEL_FILES_INIT, files = ITH_MODEL_FILES_INIT, other = ITH_MODEL_FILES_INIT;
    whole.folder = CLIP, other.folder = MODEL, other.image_encoder = encoder;
    files.dit = dit, files.vae = CLIP "/vae", files.text_encoder = CLIP "/text_encoder";
    files.tokenizer = CLIP "/tokenizer";
    assert_files_refused(files, ITH_ERR_ARGUMENT, "image_encoder is needed");
    files.image_encoder = encoder;
    const frame a = video_with(&whole, 0, &image), b = video_with(&files, 0, &image);
    assert_same(&a, &b);
    assert_files_refused(other, ITH_ERR_ARGUMENT, "has no image encoder");
    other.image_encoder = NULL, other.dit = dit; /* beside a checkpoint that has none */
    assert_files_refused(other, ITH_ERR_ARGUMENT, "image_encoder is needed besides");
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
        test(the_folder_of_a_model_may_be_named_for_its_components),
        test(a_tokenizer_is_found_in_the_folder_that_is_named),
        test(half_precision_gives_the_same_bits),
        test(an_all_in_one_file_gives_the_same_bits),
        test(a_variant_is_taken),
        test(an_image_encoder_may_be_a_file),
        test(a_file_of_the_working_folder_is_taken),
        test(a_checkpoint_without_a_tokenizer),
        test(the_tokenizer_of_the_folder_is_taken),
    };
    return cmocka_run_group_tests_name("model files", tests, NULL, NULL);
}
