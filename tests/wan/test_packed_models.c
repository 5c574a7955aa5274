/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose weights are in GGUF files, in fp8 or in int8: the latents of a run have the bits of a run with the same
 * numbers in safetensors files as f32. test_unpack.c compares the numbers with a reference. */
#include "support/engine/gguf_write.h"
#include "support/engine/golden_run.h"
#include "support/fixture.h"
#include "support/folder_fixture.h"
#include "support/memory.h"

#include <ithaca/wan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MODEL "../models/shapes"
#define PREFIX "model.diffusion_model."

static void copy_config(void)
{
    size_t bytes = 0;
    char *text = temporary_read(MODEL "/transformer/config.json", &bytes);
    temporary_write(temporary_path(folder, "config.json"), text, bytes);
    free(text);
}

/* The transformer with original names, as numbers of a type. */
static package *transformer(const char *prefix, ith_dtype type)
{
    package *p = calloc(1, sizeof *p);
    assert_non_null(p);
    package_add(p, MODEL "/transformer", name_original_dit, prefix, type);
    return p;
}

/* The latents of every step of a short run with the transformer, or the text encoder, in a file of the folder. */
static ith_tensor_file *run(const char *transformer_file, const char *text_file, int ranks, int64_t keep_packed)
{
    char dit[512], text[512];
    ith_pipeline *pipeline = NULL;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    snprintf(dit, sizeof dit, "%s/%s", folder, transformer_file ? transformer_file : "");
    snprintf(text, sizeof text, "%s/%s", folder, text_file ? text_file : "");
    files.dit = transformer_file ? dit : MODEL "/transformer";
    files.vae = MODEL "/vae";
    files.text_encoder = text_file ? text : MODEL "/text_encoder";
    files.tokenizer = MODEL "/tokenizer";
    options.prompt = "A red circle moves to the right.", options.negative = "blur";
    options.frames = 1, options.height = options.width = 32, options.steps = 2, options.shift = 1;
    options.precision = ITH_PRECISION_F32, options.threads = 1, options.keep_packed = keep_packed;
    attention.strategy = ITH_STRATEGY_ULYSSES, options.attention = &attention;
    check(context, ith_pipeline_open_files(context, &files, &pipeline));
    check(context, ith_pipeline_check(pipeline));
    ith_tensor_file *dump = golden_generate(context, pipeline, ranks, &options, NULL);
    ith_pipeline_close(&pipeline);
    return dump;
}

/* Fails unless two runs have the same latents, all finite and not all the same. Closes both. */
static void assert_same(ith_tensor_file *a, ith_tensor_file *b)
{
    const ith_tensor *x = ith_tensor_file_find(a, "latents"), *y = ith_tensor_file_find(b, "latents");
    const float *numbers = x->data;
    assert_int_equal(x->bytes, y->bytes);
    assert_memory_equal(x->data, y->data, (size_t)x->bytes);
    int64_t different = 0;
    for (int64_t i = 1; i < x->bytes / 4; i++) {
        assert_true(numbers[i] == numbers[i]);
        different += numbers[i] != numbers[0];
    }
    assert_true(different > 0);
    ith_tensor_file_close(&a), ith_tensor_file_close(&b);
}

/* bf16 and f16 matrices and f32 vectors in GGUF, compared with the same numbers in safetensors files of diffusers. */
static void gguf_files_of_16_bits(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_BF16, ITH_F16, ITH_F32};
    copy_config();
    for (int i = 0; i < 3; i++) {
        package *p = transformer(i ? "" : PREFIX, types[i]);
        gguf_write(p, temporary_path(folder, "x.gguf"));
        package_write(p, temporary_path(folder, "x.safetensors"), 0, 1);
        package_free(p);
        assert_same(run("x.gguf", NULL, 1, 0), run("x.safetensors", NULL, 1, 0));
    }
}

/* Whether a tensor is a matrix of a layer that published files quantise, and its rows are whole quantisation blocks. */
static bool is_packed(const ith_tensor *tensor, ith_dtype type)
{
    return tensor->dims == 2 && strstr(tensor->name, "blocks.") && strstr(tensor->name, ".weight") &&
           tensor->shape[1] % ith_dtype_run(type) == 0;
}

/* Mixes types as published files do: matrices with rows of 768 numbers get the type with quantisation blocks of 256,
 * others a type with blocks of 32. */
static void pack_blocks(package *p, ith_dtype wide, ith_dtype narrow)
{
    int packed[2] = {0, 0};
    for (int64_t i = 0; i < p->count; i++)
        for (int n = 0; n < 2; n++)
            if (is_packed(&p->tensors[i], n ? narrow : wide) && p->tensors[i].dtype == ITH_BF16) {
                package_pack(p, i, n ? narrow : wide);
                packed[n]++;
            }
    assert_true(packed[0] >= 6 && (packed[1] >= 6 || wide == narrow));
}

static void gguf_files_of_every_kind(void **state)
{
    (void)state;
    static const ith_dtype kinds[][2] = {{ITH_Q4_K, ITH_Q8_0}, {ITH_Q5_K, ITH_Q5_0}, {ITH_Q6_K, ITH_Q5_1},
                                         {ITH_Q2_K, ITH_Q4_0}, {ITH_Q3_K, ITH_Q4_1}, {ITH_IQ4_NL, ITH_IQ4_NL}};
    copy_config();
    for (int i = 0; i < 6; i++) {
        package *p = transformer("", ITH_BF16);
        pack_blocks(p, kinds[i][0], kinds[i][1]);
        gguf_write(p, temporary_path(folder, "x.gguf"));
        package_unpack(p, 1);
        package_write(p, temporary_path(folder, "x.safetensors"), 0, 1);
        package_free(p);
        assert_same(run("x.gguf", NULL, i == 0 ? 2 : 1, i == 1), run("x.safetensors", NULL, 1, 0));
    }
}

/* The bytes of all tensors of a type. */
static int64_t bytes_of(const package *p, ith_dtype type)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < p->count; i++)
        bytes += p->tensors[i].dtype == type ? p->tensors[i].bytes : 0;
    return bytes;
}

/* A component's description names all types of its tensors, the one with the most bytes first. */
static void types_are_listed_by_bytes(void **state)
{
    (void)state;
    copy_config();
    package *p = transformer("", ITH_BF16);
    pack_blocks(p, ITH_Q4_K, ITH_Q8_0);
    gguf_write(p, temporary_path(folder, "x.gguf"));
    assert_true(bytes_of(p, ITH_Q8_0) > bytes_of(p, ITH_BF16) && bytes_of(p, ITH_BF16) > bytes_of(p, ITH_Q4_K));
    package_free(p);
    ith_pipeline *pipeline = NULL;
    ith_model_part part = ITH_MODEL_PART_INIT;
    ith_model_files files = ITH_MODEL_FILES_INIT;
    files.dit = temporary_path(folder, "x.gguf");
    files.vae = MODEL "/vae", files.text_encoder = MODEL "/text_encoder", files.tokenizer = MODEL "/tokenizer";
    check(context, ith_pipeline_open_files(context, &files, &pipeline));
    check(context, ith_pipeline_part(pipeline, 0, &part));
    assert_string_equal(part.name, "transformer");
    assert_string_equal(part.types, "q8_0, bf16, q4_k");
    ith_pipeline_close(&pipeline);
}

/* Adds a scale of 1/8 to each packed matrix, or, by row, a scale of 1/8 for each of its rows. */
static void add_scales(package *p, const char *suffix, bool by_row)
{
    float scales[1536];
    for (int i = 0; i < 1536; i++)
        scales[i] = 0.125f;
    for (int64_t i = p->count - 1; i >= 0; i--) {
        char name[192];
        const ith_tensor *t = &p->tensors[i];
        if (t->dtype != ITH_F8_E4M3 && t->dtype != ITH_I8)
            continue;
        snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name, suffix);
        package_add_floats(p, name, by_row ? 2 : 0, (int64_t[]){t->shape[0], 1}, scales);
    }
}

static void scaled_files_of_8_bits(void **state)
{
    (void)state;
    static const struct {
        ith_dtype type;
        const char *suffix; /* the scales' names end with it; NULL: no scales */
        bool by_row;
    } forms[] = {{ITH_F8_E4M3, NULL, false}, {ITH_F8_E4M3, ".scale_weight", false}, {ITH_I8, ".weight_scale", true}};
    copy_config();
    for (int i = 0; i < 3; i++) {
        package *p = transformer(PREFIX, ITH_F16);
        const int64_t count = p->count;
        for (int64_t n = 0; n < count; n++)
            if (is_packed(&p->tensors[n], forms[i].type))
                package_pack(p, n, forms[i].type);
        if (forms[i].suffix)
            add_scales(p, forms[i].suffix, forms[i].by_row);
        package_write(p, temporary_path(folder, "x.safetensors"), 0, 1);
        while (p->count > count) { /* removes the scales */
            free(p->owned[--p->count]);
            p->owned[p->count] = NULL;
        }
        package_unpack(p, forms[i].suffix ? 0.125f : 1);
        package_write(p, temporary_path(folder, "y.safetensors"), 0, 1);
        package_free(p);
        assert_same(run("x.safetensors", NULL, 1, i == 1), run("y.safetensors", NULL, 1, 0));
    }
}

/* A text encoder with the names of llama.cpp, whose embedding and matrices are Q8_0. */
static void a_text_encoder_of_q8_0(void **state)
{
    (void)state;
    package *p = calloc(1, sizeof *p);
    package_add(p, MODEL "/text_encoder", name_llama_text, "", ITH_F32);
    for (int64_t i = 0; i < p->count; i++)
        if (p->tensors[i].dims == 2 && p->tensors[i].shape[1] % 32 == 0)
            package_pack(p, i, ITH_Q8_0);
    gguf_write(p, temporary_path(folder, "text.gguf"));
    package_unpack(p, 1);
    package_write(p, temporary_path(folder, "text.safetensors"), 0, 1);
    package_free(p);
    assert_same(run(NULL, "text.gguf", 1, 0), run(NULL, "text.safetensors", 1, 0));
}

static void same_name(const char *canonical, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", canonical);
}

/* A text encoder whose embedding is fp8 or int8 with scales, as ComfyUI saves it. */
static void an_embedding_with_scales(void **state)
{
    (void)state;
    for (int by_row = 0; by_row < 2; by_row++) {
        package *p = calloc(1, sizeof *p);
        package_add(p, MODEL "/text_encoder", same_name, "", ITH_F32);
        const int64_t count = p->count;
        for (int64_t i = 0; i < p->count; i++)
            if (!strcmp(p->tensors[i].name, "shared.weight"))
                package_pack(p, i, by_row ? ITH_I8 : ITH_F8_E4M3);
        add_scales(p, ".weight_scale", by_row);
        assert_int_equal(p->count, count + 1);
        package_write(p, temporary_path(folder, "x.safetensors"), 0, 1);
        free(p->owned[--p->count]);
        p->owned[p->count] = NULL;
        package_unpack(p, 0.125f);
        package_write(p, temporary_path(folder, "y.safetensors"), 0, 1);
        package_free(p);
        assert_same(run(NULL, "x.safetensors", 1, 0), run(NULL, "y.safetensors", 1, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gguf_files_of_16_bits, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(gguf_files_of_every_kind, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(types_are_listed_by_bytes, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(scaled_files_of_8_bits, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_text_encoder_of_q8_0, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(an_embedding_with_scales, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
