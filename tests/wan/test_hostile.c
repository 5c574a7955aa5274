/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints with one thing wrong: each is refused when the folder is opened, by a sentence that names the file and
 * the tensor or key. */
#include "support/engine/altered_model.h"
#include "support/memory.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void the_whole_model_is_taken(void **state)
{
    (void)state;
    if (attempt())
        fail_msg("%s", ith_context_error(context));
}

static void missing_files_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < part_count; i++) {
        if (strstr(parts[i], "tokens_map") || strstr(parts[i], "tokenizer_config"))
            continue; /* these files are not read */
        unlink(temporary_path(folder, parts[i]));
        assert_refused(ITH_ERR_IO, parts[i], "");
        link_part(parts[i]);
    }
    assert_int_equal(attempt(), ITH_OK); /* all files are back in their places */
}

/* Weight files are cut, empty, too long or folders, or claim a wrong length of their header. */
static void damaged_weight_files_are_named(void **state)
{
    (void)state;
    static const char *const files[] = {TEXT, "transformer/" SHARD_1, "transformer/" SHARD_2, "transformer_2/" SHARD_2,
                                        VAE};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t bytes = 0;
        char *whole = temporary_read(temporary_path(folder, files[i]), &bytes);
        const size_t lengths[] = {0, 7, 8, 100, bytes / 2, bytes - 1, bytes + 1}; /* the last one adds a NUL */
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            replace_part(files[i], whole, lengths[j]);
            assert_refused(ITH_ERR_FORMAT, files[i], "");
        }
        const uint64_t claims[] = {0, bytes, UINT64_C(99999999), UINT64_C(1) << 40, UINT64_MAX};
        for (size_t j = 0; j < sizeof claims / sizeof claims[0]; j++) {
            memcpy(whole, &claims[j], sizeof claims[j]);
            replace_part(files[i], whole, bytes);
            assert_refused(ITH_ERR_FORMAT, files[i], "");
        }
        unlink(temporary_path(folder, files[i]));
        temporary_require(mkdir(temporary_path(folder, files[i]), 0700) == 0, files[i]);
        assert_refused(ITH_ERR_IO, files[i], "folder");
        temporary_require(rmdir(temporary_path(folder, files[i])) == 0, files[i]);
        link_part(files[i]);
        free(whole);
    }
}

static void damaged_tokenizers_are_named(void **state)
{
    (void)state;
    const char *part = "tokenizer/spiece.model";
    size_t bytes = 0;
    char *whole = temporary_read(temporary_path(folder, part), &bytes);
    const size_t lengths[] = {0, 1, 100, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        replace_part(part, whole, lengths[i]);
        assert_refused(ITH_ERR_FORMAT, part, "");
    }
    memset(whole, 0xff, bytes);
    replace_part(part, whole, bytes);
    assert_refused(ITH_ERR_FORMAT, part, "");
    free(whole);
}

static void malformed_json_is_named(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{", "[]", "null", "{\"a\": 1, \"a\": 2}", "{\"_class_name\": \"\xff\"}"};
    for (size_t i = 0; i < part_count; i++) {
        if (strcmp(strrchr(parts[i], '.'), ".json") || strstr(parts[i], "tokenizer/"))
            continue;
        for (size_t j = 0; j < sizeof texts / sizeof texts[0]; j++) {
            replace_part(parts[i], texts[j], strlen(texts[j]));
            assert_refused(ITH_ERR_FORMAT, parts[i], "");
        }
        link_part(parts[i]);
    }
}

static void tensors_that_do_not_fit_are_named(void **state)
{
    (void)state;
    static const edit edits[] = {
        /* a tensor under another name */
        {VAE, "\"decoder.conv_in.bias\"", "\"decoder.conv_in.bia2\"", EITHER, VAE, "decoder.conv_in.bia"},
        {TEXT, "\"shared.weight\"", "\"sharee.weight\"", EITHER, TEXT, ".weight"},
        {TEXT, "\"encoder.final_layer_norm.weight\"", "\"encoder.final_layer_norm.weigh2\"", EITHER, TEXT,
         "encoder.final_layer_norm.weigh"},
        {TEXT, "\"encoder.block.1.layer.1.DenseReluDense.wo.weight\"",
         "\"encoder.block.1.layer.1.DenseReluDense.wi.weight\"", EITHER, TEXT, "block.1.layer.1.DenseReluDense.w"},
        {"transformer/" SHARD_1, "\"blocks.0.ffn.net.2.bias\"", "\"blocks.0.ffn.net.3.bias\"", F, SHARD_1,
         "blocks.0.ffn.net.3.bias"},
        {"transformer_2/" SHARD_1, "\"blocks.0.ffn.net.2.bias\"", "\"blocks.0.ffn.net.3.bias\"", F,
         "transformer_2/" SHARD_1, "blocks.0.ffn.net.3.bias"},
        /* another shape with as many bytes */
        {VAE, "\"shape\":[64,16,3,3,3]", "\"shape\":[16,64,3,3,3]", F, VAE, "[16, 64, 3, 3, 3]"},
        {"transformer/" SHARD_1, "\"shape\":[768,192]", "\"shape\":[192,768]", F, "transformer/" SHARD_1, "[192, 768]"},
        {TEXT, "\"shape\":[128,128]", "\"shape\":[16384]", F, TEXT, "[16384]"},
        {TEXT, "\"shape\":[128,128]", "\"shape\":[1,128,128]", F, TEXT, "[1, 128, 128]"},
        /* another type */
        {VAE, "\"dtype\":\"F32\"", "\"dtype\":\"F8_E4M3\"", F, VAE, "F8_E4M3"},
        {VAE, "\"dtype\":\"F32\"", "\"dtype\":\"I32\"", U, VAE, "I32"},
        {VAE, "\"dtype\":\"F32\"", "\"dtype\":\"F64\"", F, VAE, "bytes"},
        {TEXT, "\"dtype\":\"BF16\"", "\"dtype\":\"I16\"", U, TEXT, "I16"},
        {TEXT, "\"shape\":[32,4]", "\"shape\":[4,32]", F, TEXT, "relative_attention_bias"},
        {TEXT, "\"shape\":[128]", "\"shape\":[128,1]", F, TEXT, "[128, 1]"},
        {TEXT, "\"shape\":[128,256]", "\"shape\":[256,128]", F, TEXT, "layer.1.DenseReluDense.wo"},
        /* another place in the file */
        {VAE, "\"data_offsets\":[256,", "\"data_offsets\":[252,", F, VAE, "decoder.conv_in.weight"},
        {TEXT, "\"data_offsets\":[32768,65536]", "\"data_offsets\":[0,32768]", F, TEXT, "overlaps"},
        {TEXT, "\"data_offsets\":[32768,65536]", "\"data_offsets\":[-32768,0]", F, TEXT, "negative"},
        /* unknown tensors, as of a LoRA, a control model, a Wan 2.1 I2V */
        {VAE, "{\"", "{\"decoder.conv_in.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"",
         U, VAE, "decoder.conv_in.lora_A.weight"},
        {TEXT, "{\"", "{\"encoder.lora_down.weight\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"", U,
         TEXT, "encoder.lora_down.weight"},
        {"transformer/" SHARD_1, "{\"",
         "{\"control_blocks.0.weight\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"", F, SHARD_1,
         "control_blocks.0.weight"},
        {"transformer/" SHARD_1, "\"blocks.0.attn2.to_k.bias\"", "\"blocks.0.attn2.add_k_proj.bias\"", F, SHARD_1,
         "add_k_proj"},
    };
    refuse_edits(edits, sizeof edits / sizeof edits[0]);
}

static void indexes_that_lie_are_named(void **state)
{
    (void)state;
#define PLACE(shard) "\"proj_out.bias\": \"" shard "\""
    static const edit edits[] = {
        {"transformer/" INDEX, PLACE(SHARD_2), PLACE("../vae/diffusion_pytorch_model.safetensors"), F,
         "transformer/" INDEX, "proj_out.bias"},
        {"transformer_2/" INDEX, PLACE(SHARD_2), PLACE("/etc/passwd"), F, "transformer_2/" INDEX, "/etc/passwd"},
        {"transformer/" INDEX, PLACE(SHARD_2), PLACE(".."), F, "transformer/" INDEX, "proj_out.bias"},
        {"transformer/" INDEX, PLACE(SHARD_2), PLACE(""), F, "transformer/" INDEX, "proj_out.bias"},
        {"transformer/" INDEX, PLACE(SHARD_2), "\"proj_out.bias\": 2", F, "transformer/" INDEX, "proj_out.bias"},
        {"transformer/" INDEX, PLACE(SHARD_2), PLACE(SHARD_1), F, SHARD_2, "proj_out.bias"},
        {"transformer/" INDEX, PLACE(SHARD_2), PLACE("none.safetensors"), ITH_ERR_IO, "transformer/none.safetensors",
         INDEX},
        {"transformer/" INDEX, PLACE(SHARD_2), PLACE("config.json"), F, "transformer/config.json", INDEX},
        {"transformer/" INDEX, "\"proj_out.bias\"", "\"proj_out.gain\"", F, SHARD_2, "proj_out.bias"},
        {"transformer/" INDEX, PLACE(SHARD_2), PLACE(SHARD_2) ", \"blocks.0.lora_A\": \"" SHARD_1 "\"", F, SHARD_1,
         "blocks.0.lora_A"},
        {"transformer/" INDEX, "\"weight_map\"", "\"weights\"", F, "transformer/" INDEX, "weight_map"},
        {"transformer/" INDEX, "\"weight_map\": {", "\"weight_map\": 7, \"x\": {", F, "transformer/" INDEX,
         "weight_map"},
    };
#undef PLACE
    refuse_edits(edits, sizeof edits / sizeof edits[0]);
}

static void other_kinds_of_model_are_named(void **state)
{
    (void)state;
#define T "transformer/config.json"
#define CLASS "\"_class_name\": "
    static const edit edits[] = {
        {"model_index.json", "WanPipeline", "WanImageToVideoPipeline", U, "transformer/config.json", "36 and 16"},
        {"model_index.json", "WanPipeline", "FluxPipeline", U, "model_index.json", "FluxPipeline"},
        {"model_index.json", CLASS "\"WanPipeline\"", CLASS "3", F, "model_index.json", "_class_name"},
        {"model_index.json", CLASS "\"WanPipeline\"", "\"class\": \"WanPipeline\"", F, "model_index.json",
         "_class_name"},
        {"scheduler/scheduler_config.json", "UniPCMultistepScheduler", "DDIMScheduler", U, "scheduler_config.json",
         "DDIMScheduler"},
        {T, "WanTransformer3DModel", "WanVACETransformer3DModel", U, T, "WanVACETransformer3DModel"},
        {T, "\"image_dim\": null", "\"image_dim\": 1280", U, T, "image_dim"},
        {T, "\"added_kv_proj_dim\": null", "\"added_kv_proj_dim\": 192", U, T, "added_kv_proj_dim"},
        {T, "\"in_channels\": 16", "\"in_channels\": 36", F, "transformer has 36", "transformer_2 16"},
        {"transformer_2/config.json", "\"in_channels\": 16", "\"in_channels\": 36", F, "transformer has 16",
         "transformer_2 36"},
        {T, "\"in_channels\": 16", "\"in_channels\": 37", U, T, "37"},
        {T, "rms_norm_across_heads", "layer_norm", U, T, "qk_norm"},
        {T, "\"cross_attn_norm\": true", "\"cross_attn_norm\": false", U, "transformer/diffusion_pytorch_model",
         "norm2"},
        {"text_encoder/config.json", "\"model_type\": \"umt5\"", "\"model_type\": \"clip\"", U,
         "text_encoder/config.json", "clip"},
        {"vae/config.json", "AutoencoderKLWan", "AutoencoderKLCogVideoX", U, "vae/config.json", "CogVideoX"},
    };
    refuse_edits(edits, sizeof edits / sizeof edits[0]);
}

/* Gives every key that is a size each of some impossible values. */
static void absurd_sizes_are_named(void **state)
{
    (void)state;
    static const char *const values[] = {"0", "-1", "1e3", "\"6\"", "true", "[6]", "1000000000000000000"};
    static const struct {
        const char *part, *key, *value;
    } sizes[] = {
        {T, "num_layers", "6"},
        {T, "num_attention_heads", "6"},
        {T, "attention_head_dim", "32"},
        {T, "ffn_dim", "768"},
        {T, "freq_dim", "256"},
        {T, "text_dim", "128"},
        {T, "in_channels", "16"},
        {T, "out_channels", "16"},
        {"transformer_2/config.json", "num_layers", "6"},
        {"text_encoder/config.json", "num_layers", "2"},
        {"text_encoder/config.json", "num_heads", "4"},
        {"text_encoder/config.json", "d_model", "128"},
        {"text_encoder/config.json", "d_kv", "32"},
        {"text_encoder/config.json", "d_ff", "256"},
        {"text_encoder/config.json", "vocab_size", "1536"},
        {"text_encoder/config.json", "relative_attention_num_buckets", "32"},
        {"text_encoder/config.json", "relative_attention_max_distance", "128"},
        {"vae/config.json", "z_dim", "16"},
        {"vae/config.json", "base_dim", "16"},
        {"vae/config.json", "num_res_blocks", "1"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            char from[96], to[96];
            snprintf(from, sizeof from, "\"%s\": %s", sizes[i].key, sizes[i].value);
            snprintf(to, sizeof to, "\"%s\": %s", sizes[i].key, values[j]);
            edit_part(sizes[i].part, from, to);
            assert_refused(EITHER, sizes[i].part, sizes[i].key);
            link_part(sizes[i].part);
        }
}

static void absurd_numbers_are_named(void **state)
{
    (void)state;
#define S "scheduler/scheduler_config.json"
#define V "vae/config.json"
    static const edit edits[] = {
        {"model_index.json", "\"boundary_ratio\": 0.875", "\"boundary_ratio\": 2", F, "model_index.json",
         "boundary_ratio"},
        {"model_index.json", "\"boundary_ratio\": 0.875", "\"boundary_ratio\": -0.5", F, "model_index.json",
         "boundary_ratio"},
        {"model_index.json", "\"boundary_ratio\": 0.875", "\"boundary_ratio\": \"0.9\"", F, "model_index.json",
         "boundary_ratio"},
        {T, "\"eps\": 1e-06", "\"eps\": -1", EITHER, T, "eps"},
        {T, "\"eps\": 1e-06", "\"eps\": 1e300", EITHER, T, "eps"},
        {T, "\"eps\": 1e-06", "\"eps\": \"small\"", F, T, "eps"},
        {T, "\"attention_head_dim\": 32", "\"attention_head_dim\": 33", F, T, "attention_head_dim"},
        {T, "\"patch_size\": [\n    1,", "\"patch_size\": [\n    2,", U, T, "patch_size"},
        {T, "\"patch_size\": [\n    1,", "\"patch_size\": [\n", U, T, "patch_size"},
        {T, "\"patch_size\": [", "\"patch_size\": [], \"x\": [", U, T, "patch_size"},
        {T, "\"text_dim\": 128", "\"text_dim\": 64", F, T, "text_dim"},
        /* possible sizes, which the weights do not have */
        {T, "\"num_layers\": 6", "\"num_layers\": 7", F, "transformer/", "blocks.6."},
        {T, "\"num_layers\": 6", "\"num_layers\": 5", U, "transformer/", "blocks.5."},
        {T, "\"num_attention_heads\": 6", "\"num_attention_heads\": 5", F, "transformer/", "160"},
        {T, "\"ffn_dim\": 768", "\"ffn_dim\": 767", F, "transformer/", "767"},
        {"text_encoder/config.json", "\"num_layers\": 2", "\"num_layers\": 3", F, TEXT, "block.2."},
        {"text_encoder/config.json", "\"num_layers\": 2", "\"num_layers\": 1", U, TEXT, "block.1."},
        {"text_encoder/config.json", "\"d_ff\": 256", "\"d_ff\": 255", F, TEXT, "255"},
        {"text_encoder/config.json", "\"vocab_size\": 1536", "\"vocab_size\": 1537", F, TEXT, "shared.weight"},
        {V, "\"is_residual\": false", "\"is_residual\": true", F, "vae/", "upsampler.resample"},
        {V, "\"out_channels\": 3", "\"out_channels\": 12", F, V, "out_channels"},
        {V, "\"patch_size\": null", "\"patch_size\": 2", F, V, "out_channels"},
        {V, "\"latents_mean\": [", "\"latents_mean\": [0.5,", F, V, "latents_mean"},
        {V, "\"latents_std\": [", "\"latents_std\": [0.5,", F, V, "latents_std"},
        {V, "\"latents_std\": [", "\"latents_std\": [\"x\",", F, V, "latents_std"},
        {V, "1.390621", "0", F, V, "latents_std"},
        {V, "1.390621", "-1.390621", F, V, "latents_std"},
        {V, "1.390621", "1e-60", F, V, "1e-60, which f32 cannot"},
        {V, "1.390621", "1e60", F, V, "latents_std"},
        {V, "1.390621", "NaN", F, V, "config.json"},
        {V, "-0.957273", "1e60", F, V, "latents_mean"},
        {"text_encoder/config.json", "1e-06", "-1e-06", F, "text_encoder/config.json", "layer_norm_epsilon"},
        {"text_encoder/config.json", "1e-06", "2", F, "text_encoder/config.json", "layer_norm_epsilon"},
        {T, "\"eps\": 1e-06", "\"eps\": 0", F, T, "eps"},
        {V, "\"dim_mult\": [", "\"dim_mult\": [0,", EITHER, V, "dim_mult"},
        {V, "\"dim_mult\": [", "\"dim_mult\": [1000000000000000000,", EITHER, V, "dim_mult"},
        {V, "\"dim_mult\": [", "\"dim_mult\": [], \"x\": [", EITHER, V, "dim_mult"},
        {V, "\"temperal_downsample\": [", "\"temperal_downsample\": [3,", EITHER, V, "temperal_downsample"},
    };
    refuse_edits(edits, sizeof edits / sizeof edits[0]);
}

static void absurd_shifts_are_named(void **state)
{
    (void)state;
    static const char *const values[] = {"0.0", "-3.0", "\"3.0\"", "1e300", "[3.0]"};
    size_t bytes = 0;
    char *text = temporary_read(temporary_path(folder, S), &bytes), from[64], to[64];
    char *at = strstr(text, "\"flow_shift\": ");
    assert_non_null(at);
    snprintf(from, sizeof from, "%.*s", (int)strcspn(at, ",\n"), at);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        snprintf(to, sizeof to, "\"flow_shift\": %s", values[i]);
        edit_part(S, from, to);
        assert_refused(F, S, "shift");
        link_part(S);
    }
    free(text);
}

/* Changes random bytes of each configuration. The model is opened or refused, and no memory is lost. */
static void configurations_with_changed_bytes(void **state)
{
    (void)state;
    static const char *const files[] = {"model_index.json", S, T, "text_encoder/config.json", V};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t bytes = 0;
        char *whole = temporary_read(temporary_path(folder, files[i]), &bytes);
        for (int round = 0; round < 100; round++) {
            size_t at = random_below(&seed, (uint32_t)bytes);
            char kept = whole[at];
            const int digit = '0' + (int)random_below(&seed, 10), flipped = kept ^ 1 << random_below(&seed, 8);
            whole[at] = (char)(round % 2 ? digit : flipped);
            replace_part(files[i], whole, bytes);
            ith_pipeline *pipeline = NULL;
            if (ith_pipeline_open(context, folder, &pipeline))
                assert_non_null(strstr(ith_context_error(context), folder));
            ith_pipeline_close(&pipeline);
            assert_int_equal(memory_of(context).current_bytes, 0);
            whole[at] = kept;
        }
        link_part(files[i]);
        free(whole);
    }
}

static void what_is_no_model_is_named(void **state)
{
    (void)state;
    ith_pipeline *pipeline = NULL;
    const char *places[] = {temporary_path(folder, "none"), temporary_path(folder, "vae"), "/dev/null"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        assert_int_equal(ith_pipeline_open(context, places[i], &pipeline), ITH_ERR_IO);
        assert_null(pipeline);
        assert_non_null(strstr(ith_context_error(context), places[i]));
        assert_non_null(strstr(ith_context_error(context), "model_index.json"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_whole_model_is_taken, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(missing_files_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(damaged_weight_files_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(damaged_tokenizers_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(malformed_json_is_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(tensors_that_do_not_fit_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(indexes_that_lie_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(other_kinds_of_model_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(absurd_sizes_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(absurd_numbers_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(absurd_shifts_are_named, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(configurations_with_changed_bytes, altered_model_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_model_is_named, altered_model_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
