/* SPDX-License-Identifier: Apache-2.0 */
/* The names of tensors in files of other origins, compared with pairs of names that diffusers' own conversion made from
 * the modules of the original code (golden/names.json, tools/make_name_golden.py). The image encoder's pairs are in
 * golden/clip/names.json: the modules of both codes compute the same with these weights
 * (tools/make_vision_golden.py). */
#include "support/fixture.h"
#include "support/other_locale.h"
#include "wan/names/module_names.h"
#include "wan/run/lora_advice.h"
#include "wan/source/recognise.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef const char *name_fn(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES]);

#define NAMES "golden/names.json"

typedef struct form {
    const char *file, *list;
    name_fn *map;
    const char *prefixes[3];
} form;

static const int64_t in_level = 4;
static const form forms[] = {
    {NAMES, "dit", ith_dit_name, {"", "model.diffusion_model.", "diffusion_model."}},
    {NAMES, "text", ith_text_name, {"", "text_encoders.umt5xxl.transformer.", NULL}},
    {NAMES, "text_gguf", ith_text_name, {"", NULL, NULL}},
    {NAMES, "vae_2.1", ith_vae_name, {"", "vae.", NULL}},
    {NAMES, "vae_2.2", ith_vae_name, {"", "vae.", NULL}},
    {NAMES, "dit_flf2v", ith_dit_name, {"", "model.diffusion_model.", NULL}},
    {"golden/clip/names.json", "vision", ith_vision_name, {"", NULL, NULL}},
};
#define FORMS (sizeof forms / sizeof *forms)

static void assert_mapped(const form *f, const char *prefix, const char *name, const char *wanted)
{
    char space[ITH_STORE_NAME_BYTES], given[ITH_STORE_NAME_BYTES];
    snprintf(given, sizeof given, "%s%s", prefix, name);
    const char *got = f->map(&in_level, given, space);
    if (!got || strcmp(got, wanted))
        fail_msg("%s became %s, not %s", given, got ? got : "NULL", wanted);
}

static void names_become_canonical(void **state)
{
    (void)state;
    json_t *pair;
    size_t index;
    for (size_t i = 0; i < FORMS; i++) {
        json_t *golden = json_load_file(forms[i].file, 0, NULL);
        assert_non_null(golden);
        json_t *list = json_object_get(golden, forms[i].list);
        assert_true(json_array_size(list) > 10);
        json_array_foreach(list, index, pair)
        {
            const char *name = json_string_value(json_array_get(pair, 0));
            const char *canonical = json_string_value(json_array_get(pair, 1));
            for (int p = 0; p < 3 && forms[i].prefixes[p]; p++) {
                assert_mapped(&forms[i], forms[i].prefixes[p], name, canonical);
                assert_mapped(&forms[i], forms[i].prefixes[p], canonical, canonical);
            }
        }
        json_decref(golden);
    }
}

/* The image encoder's names without the prefix that each form may lack. */
static void prefixes_of_the_image_encoder_may_be_absent(void **state)
{
    (void)state;
    const form *vision = &forms[FORMS - 1];
    static const char *const pairs[][2] = {
        {"cls_embedding", "embeddings.class_embedding"},
        {"pos_embedding", "embeddings.position_embedding.weight"},
        {"transformer.31.attn.to_qkv.bias", "encoder.layers.31.self_attn.qkv_proj.bias"},
        {"embeddings.patch_embedding.weight", "embeddings.patch_embedding.weight"},
        {"pre_layrnorm.weight", "pre_layrnorm.weight"},
        {"encoder.layers.7.self_attn.k_proj.bias", "encoder.layers.7.self_attn.k_proj.bias"},
        {"post_layernorm.bias", "post_layernorm.bias"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char wanted[128];
        snprintf(wanted, sizeof wanted, "vision_model.%s", pairs[i][1]);
        assert_mapped(vision, "", pairs[i][0], wanted);
    }
    assert_mapped(vision, "", "head", "visual_projection");
    assert_mapped(vision, "", "visual_projection.weight", "visual_projection.weight");
    assert_mapped(vision, "", "visual.transformer.3.mlp.0.scale_weight",
                  "vision_model.encoder.layers.3.mlp.fc1.scale_weight");
}

static void scales_follow_their_module(void **state)
{
    (void)state;
    assert_mapped(&forms[0], "", "blocks.39.ffn.0.scale_weight", "blocks.39.ffn.net.0.proj.scale_weight");
    assert_mapped(&forms[0], "", "blocks.3.self_attn.o.input_scale", "blocks.3.attn1.to_out.0.input_scale");
    assert_mapped(&forms[1], "", "blocks.7.attn.q.weight_scale",
                  "encoder.block.7.layer.0.SelfAttention.q.weight_scale");
}

static void assert_ignored(name_fn *map, const char *name)
{
    char space[ITH_STORE_NAME_BYTES];
    if (map(&in_level, name, space))
        fail_msg("%s is not ignored", name);
}

/* An all-in-one file holds the tensors of the other components too. */
static void other_components_are_ignored(void **state)
{
    (void)state;
    assert_ignored(ith_dit_name, "freqs");
    assert_ignored(ith_dit_name, "vae.decoder.conv1.weight");
    assert_ignored(ith_dit_name, "text_encoders.umt5xxl.transformer.shared.weight");
    assert_ignored(ith_text_name, "model.diffusion_model.head.head.weight");
    assert_ignored(ith_text_name, "vae.conv1.weight");
    assert_ignored(ith_text_name, "spiece_model");
    assert_ignored(ith_vae_name, "model.diffusion_model.head.head.weight");
    assert_ignored(ith_vae_name, "text_encoders.umt5xxl.transformer.shared.weight");
    assert_ignored(ith_vision_name, "textual.blocks.0.attn.q.weight");
    assert_ignored(ith_vision_name, "log_scale");
    assert_ignored(ith_vision_name, "text_model.final_layer_norm.weight");
    assert_ignored(ith_vision_name, "text_projection.weight");
    assert_ignored(ith_vision_name, "logit_scale");
    assert_ignored(ith_vision_name, "vision_model.embeddings.position_ids");
    assert_ignored(ith_vision_name, "embeddings.position_ids");
    assert_ignored(ith_vision_name, "model.diffusion_model.head.head.weight");
    assert_ignored(ith_vision_name, "vae.conv1.weight");
}

/* A name that resembles a known one, or is very long, stays as it is. */
static void other_names_stay(void **state)
{
    (void)state;
    static const char *const names[] = {"blocks.1.self_attn.query.weight",
                                        "blocks.x.self_attn.q.weight",
                                        "blocks.99999.modulation",
                                        "blocks.1",
                                        "head.headache",
                                        "decoder.upsamples.1",
                                        "",
                                        "encoder.middle.1x.proj"};
    char longest[300] = "blocks.1.ffn.0.";
    memset(longest + strlen(longest), 'x', sizeof longest - 1 - strlen(longest));
    for (size_t i = 0; i < FORMS; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            char space[ITH_STORE_NAME_BYTES];
            assert_string_equal(forms[i].map(&in_level, names[n], space), names[n]);
        }
        char space[ITH_STORE_NAME_BYTES];
        assert_string_equal(forms[i].map(&in_level, longest, space), longest);
    }
}

/* Only the names of files tell the two transformers of a model apart. */
static void names_tell_high_noise_from_low(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int noise;
        bool expert;
    } cases[] = {
        {"wan2.2_t2v_high_noise_14B_fp16.safetensors", 1, true},
        {"/x/Wan2.2-T2V-A14B-LowNoise-Q4_K_M.gguf", -1, true},
        {"Wan2_2-T2V-A14B_HIGH_fp8.safetensors", 1, true},
        {"a/high_noise_model/diffusion_pytorch_model-00001-of-00006.safetensors", 1, true},
        {"a/HighNoise/low.gguf", -1, true},
        {"low_noise_model/x", -1, true},
        {"/data/low/wan2.1_t2v_14B.safetensors", 0, false},
        {"wan2.1_t2v_14B_low_memory.safetensors", -1, false},
        {"flow_shift_noise.safetensors", 0, false},
        {"high_low_noise.safetensors", 0, false},
        {"loras/lownoise.safetensors", -1, true},
        {"loras/STYLE_HIGHNOISE_v2.safetensors", 1, true},
        {"loras/myStyleHigh.safetensors", 1, false},
        {"loras/high.safetensors", 1, false},
        {"loras/style_low", -1, false},
        {"loras/low14b.safetensors", -1, false},
        {"loras/lowpoly_style.safetensors", 0, false},
        {"loras/highres_fix.safetensors", 0, false},
        {"loras/highway_slowmo.safetensors", 0, false},
        {"loras/Highlands.safetensors", 0, false},
        {"loras/shallow.safetensors", 0, false},
        {"loras/high/style.safetensors", 0, false},
        {"", 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (ith_noise_of_name(cases[i].path) != cases[i].noise)
            fail_msg("%s: noise %d", cases[i].path, ith_noise_of_name(cases[i].path));
        if (ith_is_expert_by_name(cases[i].path) != cases[i].expert)
            fail_msg("%s: its name is misread", cases[i].path);
    }
}

static void names_tell_distilled_loras(void **state)
{
    (void)state;
    assert_non_null(ith_lora_advice_of("loras/WAN_LIGHTNING.safetensors"));
    assert_non_null(ith_lora_advice_of("Wan21_CausVid_14B.safetensors"));
    assert_null(ith_lora_advice_of("loras/style.safetensors"));
}

/* In Turkish, I is not the capital of i: "HIGH" is "high" there too. */
static void names_are_the_same_in_turkish(void **state)
{
    in_other_locale("tr_TR.UTF-8", names_tell_high_noise_from_low, state);
    in_other_locale("tr_TR.UTF-8", names_tell_distilled_loras, state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_canonical),
        cmocka_unit_test(scales_follow_their_module),
        cmocka_unit_test(prefixes_of_the_image_encoder_may_be_absent),
        cmocka_unit_test(other_components_are_ignored),
        cmocka_unit_test(other_names_stay),
        cmocka_unit_test(names_tell_high_noise_from_low),
        cmocka_unit_test(names_tell_distilled_loras),
        cmocka_unit_test(names_are_the_same_in_turkish),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
