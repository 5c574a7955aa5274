/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Wan 2.1 with an image encoder (golden/i2v21, golden/flf2v21): parts that do not fit together are refused,
 * the hash of a saved run knows the image processor, and LoRA files change the parts that see the images. */
#include "support/compare.h"
#include "support/engine/altered_component.h"
#include "support/engine/find_tensor.h"
#include "support/engine/golden_pass.h"
#include "support/engine/kinds.h"
#include "support/folder_fixture.h"
#include "support/random.h"
#include "support/temporary.h"
#include "wan/lora/lora.h"
#include "wan/model/model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLF2V "golden/flf2v21"
#define DIT_GOLDEN "golden/i2v21/dit_flf2v.safetensors"
#define WEIGHTS "diffusion_pytorch_model.safetensors"

/* ---- Parts that do not fit together ------------------------------------------------------------------------------ */

static void link_to(const char *part)
{
    char source[512], whole[PATH_MAX];
    snprintf(source, sizeof source, FLF2V "/%s", part);
    temporary_require(realpath(source, whole) != NULL, source);
    temporary_require(symlink(whole, temporary_path(folder, part)) == 0, part);
}

/* Makes the model in the fixture's folder, of links, with `to` in the place of `from` in one file. */
static void make_model(const char *file, const char *from, const char *to)
{
    static const char *const parts[] = {"model_index.json",
                                        "scheduler",
                                        "tokenizer",
                                        "text_encoder",
                                        "vae",
                                        "transformer/config.json",
                                        ("transformer/" WEIGHTS),
                                        "image_encoder/config.json",
                                        "image_encoder/model.safetensors",
                                        "image_processor/preprocessor_config.json"};
    static const char *const folders[] = {"transformer", "image_encoder", "image_processor"};
    char source[512];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        temporary_require(mkdir(temporary_path(folder, folders[i]), 0700) == 0, folders[i]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i], file))
            link_to(parts[i]);
    snprintf(source, sizeof source, FLF2V "/%s", file);
    copy_text_with(source, temporary_path(folder, file), from, to);
}

static void empty_folder(void **state)
{
    folder_tear_down(state);
    folder_set_up(state);
}

static ith_status open_model(ith_model **model)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.folder = folder;
    ith_status status = ith_model_read(context, &files, model);
    return status ? status : ith_model_check_weights(context, *model);
}

static void parts_must_fit(void **state)
{
#define DIT "transformer/config.json"
#define CLIP "image_encoder/config.json"
    static const struct {
        const char *file, *from, *to;
        ith_status status;
        const char *words;
    } cases[] = {
        {CLIP, "\"hidden_size\": 32", "\"hidden_size\": 64", ITH_ERR_FORMAT, "image_dim is 32, and the image encoder"},
        {CLIP, "\"patch_size\": 14", "\"patch_size\": 7", ITH_ERR_FORMAT, "makes 34 rows of two images"},
        {DIT, "\"image_dim\": 32", "\"image_dim\": null", ITH_ERR_UNSUPPORTED, "image_dim is null"},
        {DIT, "\"image_dim\": 32", "\"image_dim\": 0", ITH_ERR_FORMAT, "image_dim"},
        {DIT, "\"image_dim\": 32", "\"image_dim\": 9999999999", ITH_ERR_FORMAT, "image_dim"},
        {DIT, "\"added_kv_proj_dim\": 64", "\"added_kv_proj_dim\": 32", ITH_ERR_UNSUPPORTED, "their width, 64"},
        {DIT, "\"pos_embed_seq_len\": 10", "\"pos_embed_seq_len\": 12", ITH_ERR_FORMAT, "pos_embed_seq_len is 12"},
        {DIT, "\"pos_embed_seq_len\": 10", "\"pos_embed_seq_len\": 65537", ITH_ERR_FORMAT, "pos_embed_seq_len"},
        {DIT, "\"pos_embed_seq_len\": 10", "\"pos_embed_seq_len\": null", ITH_ERR_UNSUPPORTED, "pos_embed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_model *model = NULL;
        make_model(cases[i].file, cases[i].from, cases[i].to);
        const ith_status status = open_model(&model);
        if (status != cases[i].status || !strstr(ith_context_error(context), cases[i].words))
            fail_msg("case %zu: %s: %s", i, ith_status_name(status), status ? ith_context_error(context) : "");
        ith_model_free(context, &model);
        empty_folder(state);
    }
}

/* transformers 5 saves the name of the processor that scales with Pillow. */
static void processors_of_every_transformers_are_read(void **state)
{
#define INDEX "model_index.json"
    static const char *const names[] = {"CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPImageProcessorPil"};
    ith_model *model = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        make_model(INDEX, "CLIPImageProcessor", names[i]);
        check(context, open_model(&model));
        ith_model_free(context, &model);
        empty_folder(state);
    }
    make_model(INDEX, "CLIPImageProcessor", "SiglipImageProcessor");
    assert_int_equal(open_model(&model), ITH_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(ith_context_error(context), "image_processor is [\"transformers\",\"SiglipImageProcessor\"]"));
}

static uint64_t hash_with(const char *file, const char *from, const char *to)
{
    uint64_t hash = 0;
    ith_model *model = NULL;
    make_model(file, from, to);
    check(context, open_model(&model));
    check(context, ith_model_hash(context, model, &hash));
    ith_model_free(context, &model);
    return hash;
}

/* A run that was saved with other pixels for the image encoder is not resumed. */
static void the_hash_knows_the_image_processor(void **state)
{
#define PROCESSOR "image_processor/preprocessor_config.json"
    const uint64_t first = hash_with(PROCESSOR, "{", "{");
    empty_folder(state);
    assert_true(hash_with(PROCESSOR, "{", "{") == first);
    empty_folder(state);
    assert_true(hash_with(PROCESSOR, "0.48145466", "0.5") != first);
}

/* ---- LoRA files -------------------------------------------------------------------------------------------------- */

#define EMBEDDER "condition_embedder.image_embedder."
enum { FORMS = 3, MODULES = 4, MOST_WIDTH = 64, MOST_TENSORS = 128 };

/* A module with its names in files of PEFT, of the original code and of kohya. */
static const struct {
    const char *canonical, *forms[FORMS];
} modules[MODULES] = {
    {"blocks.1.attn2.add_k_proj",
     {"transformer.blocks.1.attn2.add_k_proj", "diffusion_model.blocks.1.cross_attn.k_img",
      "lora_unet_blocks_1_cross_attn_k_img"}},
    {"blocks.0.attn2.add_v_proj",
     {"transformer.blocks.0.attn2.add_v_proj", "diffusion_model.blocks.0.cross_attn.v_img",
      "lora_unet_blocks_0_cross_attn_v_img"}},
    {EMBEDDER "ff.net.0.proj",
     {"transformer." EMBEDDER "ff.net.0.proj", "diffusion_model.img_emb.proj.1", "lora_unet_img_emb_proj_1"}},
    {EMBEDDER "ff.net.2",
     {"transformer." EMBEDDER "ff.net.2", "diffusion_model.img_emb.proj.3", "lora_unet_img_emb_proj_3"}},
};
/* The factors of rank 1: the product of up[m] [out, 1] and down[m] [1, in] is added to the matrix of module m. */
static float down[MODULES][MOST_WIDTH], up[MODULES][MOST_WIDTH];

/* Writes the tensors of the transformer as f32, with the products added to four matrices. */
static void write_merged(const ith_tensor_file *base, const char *path)
{
    static float *numbers[MOST_TENSORS];
    ith_tensor tensors[MOST_TENSORS];
    const int64_t count = ith_tensor_file_count(base);
    assert_true(count <= MOST_TENSORS);
    for (int64_t i = 0; i < count; i++) {
        ith_tensor *t = &tensors[i];
        *t = *ith_tensor_file_at(base, i);
        assert_int_equal(t->dtype, ITH_BF16);
        const int64_t all = t->bytes / 2;
        numbers[i] = malloc((size_t)all * sizeof(float));
        for (int64_t k = 0; k < all; k++) {
            const uint32_t bits = (uint32_t)((const uint16_t *)t->data)[k] << 16;
            memcpy(&numbers[i][k], &bits, sizeof bits);
        }
        for (int m = 0; m < MODULES; m++) {
            const size_t length = strlen(modules[m].canonical);
            if (!strncmp(t->name, modules[m].canonical, length) && !strcmp(t->name + length, ".weight"))
                for (int64_t k = 0; k < all; k++)
                    numbers[i][k] += up[m][k / t->shape[1]] * down[m][k % t->shape[1]];
        }
        t->dtype = ITH_F32, t->data = numbers[i], t->bytes = all * (int64_t)sizeof(float);
    }
    check(context, ith_tensor_file_write(context, path, tensors, count, NULL, NULL, 0));
    for (int64_t i = 0; i < count; i++)
        free(numbers[i]);
}

static void write_lora(const ith_tensor_file *base, int form, const char *path)
{
    char names[2 * MODULES][128];
    ith_tensor tensors[2 * MODULES];
    for (int i = 0; i < 2 * MODULES; i++) {
        const int m = i / 2;
        static const char *const ends[2][2] = {{"lora_A", "lora_B"}, {"lora_down", "lora_up"}};
        snprintf(names[i], sizeof names[i], "%s.weight", modules[m].canonical);
        const ith_tensor *matrix = find_tensor(base, names[i]);
        const int64_t size = matrix->shape[i % 2 ? 0 : 1];
        assert_true(size <= MOST_WIDTH);
        snprintf(names[i], sizeof names[i], "%s.%s.weight", modules[m].forms[form], ends[form == 2][i % 2]);
        tensors[i] = (ith_tensor){.struct_size = sizeof(ith_tensor),
                                  .name = names[i],
                                  .dtype = ITH_F32,
                                  .dims = 2,
                                  .shape = {i % 2 ? size : 1, i % 2 ? 1 : size},
                                  .data = i % 2 ? up[m] : down[m],
                                  .bytes = size * (int64_t)sizeof(float)};
    }
    check(context, ith_tensor_file_write(context, path, tensors, 2 * MODULES, NULL, NULL, 0));
}

/* Computes the golden pass with a transformer and a LoRA. The caller closes *p. */
static void compute(golden_pass *p, const char *model, ith_lora *lora)
{
    golden_pass_open_with(p, DIT_GOLDEN, model, lora, OPERANDS_F32, 0);
    check(context, golden_pass_run(context, NULL, p));
}

static void loras_change_the_parts_that_see_images(void **state)
{
    (void)state;
    ith_tensor_file *base = NULL;
    golden_pass plain, merged;
    const char *path = temporary_path(folder, "lora.safetensors");
    const ith_lora_source source = {.path = path, .strength = 1};
    uint64_t seed = 7;
    for (int i = 0; i < MODULES * MOST_WIDTH; i++)
        down[i / MOST_WIDTH][i % MOST_WIDTH] = random_signed(&seed),
                                 up[i / MOST_WIDTH][i % MOST_WIDTH] = random_signed(&seed);
    check(context, ith_tensor_file_open(context, FLF2V "/transformer/" WEIGHTS, &base));
    copy_text_with(FLF2V "/transformer/config.json", temporary_path(folder, "config.json"), "{", "{");
    write_merged(base, temporary_path(folder, WEIGHTS));
    compute(&plain, FLF2V "/transformer", NULL);
    compute(&merged, folder, NULL);
    const int64_t numbers = golden_pass_numbers(&plain);
    assert_true(relative_l2(merged.result, plain.result, numbers) > 1e-2);
    for (int form = 0; form < FORMS; form++) {
        ith_lora *lora = NULL;
        golden_pass changed;
        write_lora(base, form, path);
        check(context, ith_lora_open(context, &source, 1, &lora));
        compute(&changed, FLF2V "/transformer", lora);
        check(context, ith_lora_check_all_taken(context, lora));
        assert_true(relative_l2(changed.result, merged.result, numbers) <= 2e-5);
        golden_pass_close(&changed);
        ith_lora_close(&lora);
    }
    golden_pass_close(&plain), golden_pass_close(&merged);
    ith_tensor_file_close(&base);
}

#define test(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        test(parts_must_fit),
        test(processors_of_every_transformers_are_read),
        test(the_hash_knows_the_image_processor),
        test(loras_change_the_parts_that_see_images),
    };
    return cmocka_run_group_tests_name("clip_model", tests, NULL, NULL);
}
