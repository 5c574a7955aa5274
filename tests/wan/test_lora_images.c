/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA files of Wan 2.1's models from images, which change modules that read the rows of an image encoder. An I2V model
 * of Wan 2.2 has none: it leaves these changes out, says so, and takes the others. (test_lora.c has the refusal of a
 * text-to-video model.) */
#include "support/engine/golden_run.h"
#include "support/fixture.h"
#include "support/random.h"
#include "support/refused.h"
#include "support/temporary.h"

#include <ithaca/wan.h>

#include <stdlib.h>
#include <string.h>

enum { RANK = 4, WIDTH = 128, FOR_IMAGES = 4 };

static const struct {
    const char *name;
    int64_t shape[2];
} all[] = {
    /* the changes for images come first */
    {"diffusion_model.blocks.0.cross_attn.k_img.lora_down.weight", {RANK, WIDTH}},
    {"diffusion_model.blocks.0.cross_attn.k_img.lora_up.weight", {WIDTH, RANK}},
    {"diffusion_model.blocks.1.cross_attn.norm_k_img.diff", {WIDTH, 1}},
    {"diffusion_model.img_emb.proj.1.diff_b", {1280, 1}},
    {"diffusion_model.blocks.0.self_attn.q.lora_down.weight", {RANK, WIDTH}},
    {"diffusion_model.blocks.0.self_attn.q.lora_up.weight", {WIDTH, RANK}},
    {"diffusion_model.blocks.1.cross_attn.k.diff", {WIDTH, WIDTH}},
};
enum { ALL = sizeof all / sizeof *all };

/* Writes the tensors from `first` to `end` - 1 of the list to a file, whose name stays valid during seven calls. */
static const char *write_part(const char *folder, const char *name, int first, int end)
{
    ith_tensor tensors[ALL];
    float *data[ALL];
    const char *path = temporary_path(folder, name);
    for (int i = first; i < end; i++) {
        const int64_t numbers = all[i].shape[0] * all[i].shape[1];
        uint64_t seed = (uint64_t)i + 1;
        data[i] = random_floats(&seed, numbers);
        tensors[i] = (ith_tensor)ITH_TENSOR_INIT;
        tensors[i].name = all[i].name, tensors[i].dtype = ITH_F32, tensors[i].data = data[i];
        tensors[i].dims = all[i].shape[1] == 1 ? 1 : 2;
        memcpy(tensors[i].shape, all[i].shape, sizeof all[i].shape);
        tensors[i].bytes = numbers * (int64_t)sizeof *data[i];
    }
    check(context, ith_tensor_file_write(context, path, tensors + first, end - first, NULL, NULL, 0));
    for (int i = first; i < end; i++)
        free(data[i]);
    return path;
}

static ith_status open_with(const char *model, const char *path, ith_pipeline **pipeline)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_lora_file lora = ITH_LORA_FILE_INIT;
    lora.file = path, lora.strength = 0.2, lora.expert = ITH_LORA_BOTH;
    files.folder = model, files.loras = path ? &lora : NULL, files.lora_count = path ? 1 : 0;
    return ith_pipeline_open_files(context, &files, pipeline);
}

/* Returns the dump of a run of the I2V model with a LoRA; NULL: without one. said [bytes]: how the pipeline describes
 * its LoRA. */
static ith_tensor_file *run(const char *path, char *said, size_t bytes)
{
    static const uint8_t pixels[64 * 64 * 3] = {200, 10, 90};
    const ith_image image = {sizeof image, pixels, 64, 64};
    ith_pipeline *pipeline = NULL;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a red circle", options.image = &image, options.precision = ITH_PRECISION_F32;
    options.frames = 5, options.height = 64, options.width = 64, options.steps = 2;
    check(context, open_with("golden/i2v/model", path, &pipeline));
    check(context, ith_pipeline_describe_loras(pipeline, said, bytes));
    ith_tensor_file *dump = golden_generate(context, pipeline, 1, &options, NULL);
    ith_pipeline_close(&pipeline);
    return dump;
}

static bool is_same(const ith_tensor_file *a, const ith_tensor_file *b)
{
    const ith_tensor *x = ith_tensor_file_find(a, "latents"), *y = ith_tensor_file_find(b, "latents");
    return x->bytes == y->bytes && !memcmp(x->data, y->data, (size_t)x->bytes);
}

static void a_model_without_an_image_encoder_takes_the_rest(void **state)
{
    (void)state;
    char *folder = temporary_folder(), said[1000], silent[1000];
    ith_tensor_file *none = run(NULL, said, sizeof said);
    ith_tensor_file *whole = run(write_part(folder, "whole.safetensors", 0, ALL), said, sizeof said);
    ith_tensor_file *rest = run(write_part(folder, "rest.safetensors", FOR_IMAGES, ALL), silent, sizeof silent);
    assert_true(is_same(whole, rest) && !is_same(whole, none));
    assert_non_null(strstr(said, "; 4 tensors for an image encoder, which this model has not, are left out"));
    assert_null(strstr(silent, "left out"));
    ith_tensor_file_close(&none);
    ith_tensor_file_close(&whole);
    ith_tensor_file_close(&rest);
    temporary_remove(folder);
}

static void a_file_that_changes_nothing_is_refused(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = write_part(folder, "images.safetensors", 0, FOR_IMAGES);
    ith_pipeline *pipeline = NULL;
    REFUSED_AS(ITH_ERR_UNSUPPORTED, context,
               "images.safetensors: all of its tensors are for the rows of an image encoder",
               open_with("golden/i2v/model", path, &pipeline));
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_model_without_an_image_encoder_takes_the_rest),
                                       cmocka_unit_test(a_file_that_changes_nothing_is_refused)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
