/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA files of every form: the transformer with each of them is compared with diffusers, which merged it
 * (tools/make_lora_golden.py). Files with wrong contents, and LoRAs of other models and of other kinds, are refused. */
#include "support/compare.h"
#include "support/engine/find_tensor.h"
#include "support/engine/kinds.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "support/refused.h"
#include "support/temporary.h"

#include "wan/dit/dit_weights.h"

#include <ithaca/files.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL "golden/dit_small"
#define STRENGTH 0.7

static const char *const forms[] = {"peft", "original", "plain", "kohya", "differences", "biases"};
enum { FORMS = sizeof forms / sizeof *forms };

/* ---- One call of the transformer ------------------------------------------------------------------------------- */

typedef struct call {
    ith_tensor_file *run;
    ith_dit_shape shape;
    int64_t tokens, in, out; /* S; numbers of a token */
} call;

static void open_call(call *c)
{
    check(context, ith_tensor_file_open(context, SMALL "/run.safetensors", &c->run));
    const ith_tensor *latents = find_tensor(c->run, "latents");
    c->shape = (ith_dit_shape){
        .batch = 2, .frames = latents->shape[2], .height = latents->shape[3], .width = latents->shape[4]};
    c->tokens = c->shape.frames * (c->shape.height / 2) * (c->shape.width / 2);
    c->in = latents->shape[1] * ITH_DIT_PATCH, c->out = find_tensor(c->run, "out")->shape[1] * ITH_DIT_PATCH;
}

static ith_dit *open_with(ith_lora *lora, int kind, ith_linear_keep keep)
{
    const ith_dit_choices choices = {.types = number_kind(kind), .lora = lora, .keep = keep};
    ith_dit *dit = NULL;
    check(context, open_dit_with(context, SMALL, &choices, &dit));
    return dit;
}

/* Returns the output of the transformer, latents [2, ...], which the caller frees with free(). */
static float *compute(const call *c, const ith_dit *dit)
{
    ith_dit_text *text = NULL;
    ith_dit_workspace *run = NULL;
    const ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    const ith_tensor *texts[2] = {find_tensor(c->run, "text_0"), find_tensor(c->run, "text_1")};
    const float *rows[2] = {texts[0]->data, texts[1]->data}, *latents = find_tensor(c->run, "latents")->data;
    const int64_t counts[2] = {texts[0]->shape[0], texts[1]->shape[0]}, in = c->tokens * c->in,
                  out = c->tokens * c->out;
    float *tokens = malloc((size_t)(2 * in) * sizeof *tokens), *y = malloc((size_t)(2 * out) * sizeof *y);
    float *result = malloc((size_t)(2 * out) * sizeof *result);
    assert_true(tokens && y && result);
    check(context, ith_dit_text_create(context, dit, 2, rows, counts, &text));
    check(context, ith_dit_workspace_create(context, dit, text, &c->shape, &options, NULL, &run));
    for (int64_t b = 0; b < 2; b++)
        ith_dit_patchify(latents + b * in, c->in / ITH_DIT_PATCH, &c->shape, 0, c->tokens, tokens + b * in);
    const ith_dit_tokens input = {.latents = tokens, .batch_stride = in};
    check(context, ith_dit_forward(context, run, &input, find_tensor(c->run, "timestep")->data, y));
    for (int64_t b = 0; b < 2; b++)
        ith_dit_unpatchify(y + b * out, c->out / ITH_DIT_PATCH, &c->shape, 0, c->tokens, result + b * out);
    ith_dit_workspace_free(context, &run);
    ith_dit_text_free(context, &text);
    free(tokens), free(y);
    return result;
}

/* Returns the output of the transformer with a LoRA file, which the caller frees with free(). */
static float *compute_file(const call *c, const char *path)
{
    const ith_lora_source source = {.path = path, .strength = STRENGTH};
    ith_lora *lora = NULL;
    check(context, ith_lora_open(context, &source, 1, &lora));
    ith_dit *dit = open_with(lora, OPERANDS_F32, ITH_LINEAR_KEEP_NONE);
    float *y = compute(c, dit);
    ith_dit_free(context, &dit);
    ith_lora_close(&lora);
    return y;
}

static char *path_of(const char *form)
{
    static char path[100];
    snprintf(path, sizeof path, "golden/lora/%s.safetensors", form);
    return path;
}

/* ---- Against diffusers ----------------------------------------------------------------------------------------- */

static void check_form(const call *c, const ith_tensor_file *golden, const char *form)
{
    const ith_lora_source source = {.path = path_of(form), .strength = STRENGTH};
    const int64_t numbers = 2 * c->tokens * c->out;
    float *first = NULL;
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        for (ith_linear_keep keep = ITH_LINEAR_KEEP_NONE; keep <= ITH_LINEAR_KEEP_MERGED; keep++) {
            ith_lora *lora = NULL;
            check(context, ith_lora_open(context, &source, 1, &lora));
            ith_dit *dit = open_with(lora, kind, keep);
            float *y = compute(c, dit);
            double error = relative_l2(y, find_tensor(golden, form)->data, numbers);
            if (keep)
                assert_memory_equal(y, first, (size_t)numbers * sizeof *y);
            else
                print_message("%s, kind %d: relative error %.2e\n", form, kind, error);
            assert_true(error <= (kind == OPERANDS_F32 ? 2e-5 : 3e-2));
            free(first);
            first = y;
            ith_dit_free(context, &dit);
            ith_lora_close(&lora);
        }
    free(first);
}

static void every_form_is_that_of_diffusers(void **state)
{
    (void)state;
    call c;
    ith_tensor_file *golden = NULL;
    open_call(&c);
    check(context, ith_tensor_file_open(context, path_of("out"), &golden));
    for (int i = 0; i < FORMS; i++)
        check_form(&c, golden, forms[i]);
    ith_tensor_file_close(&golden);
    ith_tensor_file_close(&c.run);
}

/* The same file twice with half of the strength gives the same as once with all of it. With strength 0 it changes
 * nothing. */
static void strengths_add_up(void **state)
{
    (void)state;
    call c;
    ith_tensor_file *golden = NULL;
    open_call(&c);
    check(context, ith_tensor_file_open(context, path_of("out"), &golden));
    for (int i = 0; i < FORMS; i++) {
        const char *path = path_of(forms[i]);
        const ith_lora_source sources[] = {{.path = path, .strength = STRENGTH / 2},
                                           {.path = path, .strength = 0},
                                           {.path = path, .strength = STRENGTH / 2}};
        ith_lora *lora = NULL;
        check(context, ith_lora_open(context, sources, 3, &lora));
        ith_dit *dit = open_with(lora, OPERANDS_F32, ITH_LINEAR_KEEP_NONE);
        float *y = compute(&c, dit);
        assert_true(relative_l2(y, find_tensor(golden, forms[i])->data, 2 * c.tokens * c.out) <= 2e-5);
        free(y);
        ith_dit_free(context, &dit);
        ith_lora_close(&lora);
    }
    ith_tensor_file_close(&golden);
    ith_tensor_file_close(&c.run);
}

/* Writes a file's LoRA with an alpha of 2 in this number type for every module. */
static void write_alphas(const ith_tensor_file *file, ith_dtype type, const char *path)
{
    static const float real = 2;
    static const double wide = 2;
    static const int32_t whole = 2;
    static const int64_t wide_whole = 2;
    const int64_t count = ith_tensor_file_count(file);
    ith_tensor *tensors = malloc((size_t)count * sizeof *tensors);
    assert_non_null(tensors);
    for (int64_t i = 0; i < count; i++) {
        tensors[i] = *ith_tensor_file_at(file, i);
        if (!strstr(tensors[i].name, ".alpha"))
            continue;
        tensors[i].dtype = type, tensors[i].dims = 0, tensors[i].bytes = ith_dtype_bytes(type);
        tensors[i].data = type == ITH_F64   ? (const void *)&wide
                          : type == ITH_I32 ? (const void *)&whole
                          : type == ITH_I64 ? (const void *)&wide_whole
                                            : (const void *)&real;
    }
    check(context, ith_tensor_file_write(context, path, tensors, count, NULL, NULL, 0));
    free(tensors);
}

/* An alpha may be of any number type: tools that convert LoRAs write integers. */
static void alphas_of_all_types_are_the_same(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_F32, ITH_F64, ITH_I32, ITH_I64};
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "alphas.safetensors");
    float *first = NULL;
    call c;
    ith_tensor_file *kohya = NULL;
    open_call(&c);
    check(context, ith_tensor_file_open(context, path_of("kohya"), &kohya));
    for (int i = 0; i < 4; i++) {
        write_alphas(kohya, types[i], path);
        float *y = compute_file(&c, path);
        if (first)
            assert_memory_equal(y, first, (size_t)(2 * c.tokens * c.out) * sizeof *y);
        free(first);
        first = y;
    }
    free(first);
    ith_tensor_file_close(&kohya);
    ith_tensor_file_close(&c.run);
    temporary_remove(folder);
}

/* Writes the tensors of a file with names in the older form of diffusers, which ends in ".lora.down.weight". */
static void write_older_names(const ith_tensor_file *file, const char *path)
{
    const int64_t count = ith_tensor_file_count(file);
    ith_tensor *tensors = malloc((size_t)count * sizeof *tensors);
    char(*names)[100] = malloc((size_t)count * sizeof *names);
    assert_true(tensors && names);
    for (int64_t i = 0; i < count; i++) {
        tensors[i] = *ith_tensor_file_at(file, i);
        const char *name = tensors[i].name, *end = strstr(name, ".lora_");
        assert_non_null(end);
        snprintf(names[i], sizeof *names, "%.*s.lora.%s.weight", (int)(end - name), name,
                 strcmp(end, ".lora_A.weight") ? "up" : "down");
        tensors[i].name = names[i];
    }
    check(context, ith_tensor_file_write(context, path, tensors, count, NULL, NULL, 0));
    free(tensors), free(names);
}

/* diffusers reads files of the older form as files of PEFT, and so they give the same bits here. */
static void older_names_are_the_same(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "older.safetensors");
    call c;
    ith_tensor_file *plain = NULL;
    open_call(&c);
    check(context, ith_tensor_file_open(context, path_of("plain"), &plain));
    write_older_names(plain, path);
    float *older = compute_file(&c, path), *peft = compute_file(&c, path_of("plain"));
    assert_memory_equal(older, peft, (size_t)(2 * c.tokens * c.out) * sizeof *peft);
    free(older), free(peft);
    ith_tensor_file_close(&plain);
    ith_tensor_file_close(&c.run);
    temporary_remove(folder);
}

/* Writes the tensors of the PEFT file with these settings, and returns the output of the transformer with them. */
static float *compute_settings(const call *c, const ith_tensor_file *peft, const char *path, const char *settings)
{
    const int64_t count = ith_tensor_file_count(peft);
    const char *key = "lora_adapter_metadata";
    ith_tensor *tensors = malloc((size_t)count * sizeof *tensors);
    assert_non_null(tensors);
    for (int64_t i = 0; i < count; i++)
        tensors[i] = *ith_tensor_file_at(peft, i);
    check(context, ith_tensor_file_write(context, path, tensors, count, &key, &settings, 1));
    free(tensors);
    return compute_file(c, path);
}

/* If several patterns in alpha_pattern fit a module, PEFT takes the first one, even if another is longer. diffusers
 * puts '^' before whole names. */
static void the_first_pattern_counts(void **state)
{
    (void)state;
    static const char *const same[][2] = {{"\"to_q\": 2", "\"to_q\": 2, \"blocks.0.attn1.to_q\": 7"},
                                          {"\"to_q\": 2", "\"o_q\": 9, \"q\": 9, \"^attn1.to_q\": 9, \"to_q\": 2"},
                                          {"\"blocks.0.attn1.to_q\": 7", "\"^blocks.0.attn1.to_q\": 7"},
                                          {"\"proj_out\": 7", "\"^proj_out\": 7"}};
    char *folder = temporary_folder(), settings[200];
    const char *path = temporary_path(folder, "patterns.safetensors");
    call c;
    ith_tensor_file *peft = NULL;
    open_call(&c);
    check(context, ith_tensor_file_open(context, path_of("peft"), &peft));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        float *y[2];
        for (int k = 0; k < 2; k++) {
            snprintf(settings, sizeof settings, "{\"transformer.lora_alpha\": 5, \"transformer.alpha_pattern\": {%s}}",
                     same[i][k]);
            y[k] = compute_settings(&c, peft, path, settings);
        }
        assert_memory_equal(y[0], y[1], (size_t)(2 * c.tokens * c.out) * sizeof **y);
        free(y[0]), free(y[1]);
    }
    ith_tensor_file_close(&peft);
    ith_tensor_file_close(&c.run);
    temporary_remove(folder);
}

/* The keys of the settings have a prefix if a pipeline of diffusers saved them, and none if a transformer did
 * (save_lora_adapter). */
static void settings_need_no_prefix(void **state)
{
    (void)state;
    static const char *const same[] = {"{\"transformer.lora_alpha\": 5, \"transformer.use_rslora\": true, "
                                       "\"transformer.alpha_pattern\": {\"to_q\": 2}}",
                                       "{\"alpha_pattern\": {\"to_q\": 2}, \"lora_alpha\": 5, \"use_rslora\": true}"};
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "settings.safetensors");
    call c;
    ith_tensor_file *peft = NULL;
    open_call(&c);
    check(context, ith_tensor_file_open(context, path_of("peft"), &peft));
    float *prefixed = compute_settings(&c, peft, path, same[0]), *bare = compute_settings(&c, peft, path, same[1]);
    assert_memory_equal(prefixed, bare, (size_t)(2 * c.tokens * c.out) * sizeof *bare);
    free(prefixed), free(bare);
    ith_tensor_file_close(&peft);
    ith_tensor_file_close(&c.run);
    temporary_remove(folder);
}

/* An expert takes the memory that ith_dit_outline counts from the headers of the files. */
static void memory_is_predicted(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++)
        for (ith_linear_keep keep = ITH_LINEAR_KEEP_NONE; keep <= ITH_LINEAR_KEEP_MERGED; keep++) {
            const ith_lora_source source = {.path = path_of(forms[i]), .strength = STRENGTH};
            ith_lora *lora = NULL;
            ith_dit *dit, *outline = NULL;
            int64_t weights, files = dit_file_bytes(context, SMALL, &weights);
            check(context, ith_lora_open(context, &source, 1, &lora));
            const int64_t before = memory_of(context).current_bytes;
            dit = open_with(lora, OPERANDS_F32, keep);
            const int64_t held = memory_of(context).current_bytes - before;
            const ith_dit_choices choices = {.types = number_kind(OPERANDS_F32), .lora = lora, .keep = keep};
            check(context, ith_dit_outline(context, ith_dit_config_of(dit), &choices, &outline));
            assert_int_equal(ith_dit_bytes(outline), ith_dit_bytes(dit));
            assert_int_equal(held, ith_dit_bytes(dit) + files);
            ith_dit_free(context, &outline);
            ith_dit_free(context, &dit);
            ith_lora_close(&lora);
        }
}

/* ---- Refusals -------------------------------------------------------------------------------------------------- */

enum { WIDTH = 50, FFN = 37, TENSORS = 4 }; /* sizes of the small model */

/* A wrong file with up to four tensors. Type NONE ends their list. */
typedef struct lie {
    ith_status status;
    const char *word; /* must be in the sentence */
    struct {
        const char *name;
        ith_dtype type;
        int64_t shape[2]; /* 0: the tensor has fewer dimensions */
        float value;
    } tensors[TENSORS];
    const char *settings; /* the settings of diffusers in the metadata */
} lie;

#define Q "diffusion_model.blocks.0.self_attn.q."
#define PAIR                                                                                                           \
    {Q "lora_down.weight", ITH_F32, {2, WIDTH}, 0},                                                                    \
    {                                                                                                                  \
        Q "lora_up.weight", ITH_F32, {WIDTH, 2}, 0                                                                     \
    }
static const lie lies[] = {
    {ITH_OK, "", {PAIR}, NULL},
    {ITH_OK,
     "",
     {{"lora_unet__blocks_0_self_attn_q.lora_down.weight", ITH_F32, {2, WIDTH}, 0},
      {"lora_unet__blocks_0_self_attn_q.lora_up.weight", ITH_F32, {WIDTH, 2}, 0},
      {"lora_unet__head_head.diff_b", ITH_F32, {20}, 0}},
     NULL},
    {ITH_OK,
     "",
     {{"pipe.dit.blocks.0.self_attn.q.lora_A.default.weight", ITH_F32, {2, WIDTH}, 0},
      {"pipe.dit.blocks.0.self_attn.q.lora_B.default.weight", ITH_F32, {WIDTH, 2}, 0}},
     NULL},
    {ITH_OK,
     "",
     {{"lora_unet_blocks_0.self_attn.q.lora_down.weight", ITH_F32, {2, WIDTH}, 0},
      {"lora_unet_blocks_0.self_attn.q.lora_up.weight", ITH_F32, {WIDTH, 2}, 0}},
     NULL},
    {ITH_OK,
     "",
     {{"lycoris_blocks_0_attn1_to_q.lora_down.weight", ITH_F32, {2, WIDTH}, 0},
      {"lycoris_blocks_0_attn1_to_q.lora_up.weight", ITH_F32, {WIDTH, 2}, 0},
      {"lycoris_blocks_0_attn1_to_q.alpha", ITH_F32, {0}, 1}},
     NULL},
    {ITH_ERR_UNSUPPORTED, "LoKr", {{Q "lokr_w1", ITH_F32, {4, 4}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "LoHa", {{Q "hada_w1_a", ITH_F32, {4, 4}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "DoRA", {PAIR, {Q "dora_scale", ITH_F32, {WIDTH, 1}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "DoRA", {PAIR, {Q "lora_magnitude_vector", ITH_F32, {WIDTH}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "lora_mid", {PAIR, {Q "lora_mid.weight", ITH_F32, {2, 2}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "OFT", {{Q "oft_blocks", ITH_F32, {2, 2}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "GLoRA", {{Q "a1.weight", ITH_F32, {2, 2}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "biases", {PAIR, {Q "lora_A.bias", ITH_F32, {2}, 0}}, NULL},
    {ITH_OK, "", {PAIR, {Q "lora_B.bias", ITH_F32, {WIDTH}, 0}}, NULL},
    {ITH_ERR_FORMAT, "asks for 50 numbers", {PAIR, {Q "lora_B.bias", ITH_F32, {49}, 0}}, NULL},
    {ITH_ERR_FORMAT, "not the matrix down", {{Q "lora_B.bias", ITH_F32, {WIDTH}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "no part of a LoRA", {{Q "weight", ITH_F32, {WIDTH, WIDTH}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "(1 of 3", {PAIR, {"lora_te_q.weight", ITH_F32, {2, 2}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED,
     "changes nothing",
     {PAIR, {"diffusion_model.blocks.7.norm3.diff", ITH_F32, {WIDTH}, 0}},
     NULL},
    {ITH_ERR_UNSUPPORTED, "(1 such)", {PAIR, {"diffusion_model.blocks.0.norm1.diff", ITH_F32, {WIDTH}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED,
     "image-to-video",
     {PAIR, {"diffusion_model.blocks.0.cross_attn.k_img.diff_b", ITH_F32, {WIDTH}, 0}},
     NULL},
    {ITH_ERR_UNSUPPORTED, "image-to-video", {PAIR, {"lora_unet_img_emb_proj_1.diff", ITH_F32, {2, 2}, 0}}, NULL},
    {ITH_ERR_FORMAT, "not the matrix up", {{Q "lora_down.weight", ITH_F32, {2, WIDTH}, 0}}, NULL},
    {ITH_ERR_FORMAT, "not the matrix down", {{Q "lora_up.weight", ITH_F32, {WIDTH, 2}, 0}}, NULL},
    {ITH_ERR_FORMAT, "not the matrix down", {{Q "alpha", ITH_F32, {0}, 1}}, NULL},
    {ITH_ERR_FORMAT, "same part", {PAIR, {"lora_unet_blocks_0_self_attn_q.lora_up.weight", ITH_F32, {50, 2}, 0}}, NULL},
    {ITH_ERR_FORMAT, "same part", {PAIR, {"transformer.blocks.0.attn1.to_q.lora_B.weight", ITH_F32, {50, 2}, 0}}, NULL},
    {ITH_ERR_FORMAT, "same part", {PAIR, {"transformer.blocks.0.attn1.to_q.lora_A.weight", ITH_F32, {2, 50}, 0}}, NULL},
    {ITH_ERR_FORMAT,
     "another size",
     {{Q "lora_down.weight", ITH_F32, {2, 40}, 0}, {Q "lora_up.weight", ITH_F32, {WIDTH, 2}, 0}},
     NULL},
    {ITH_ERR_FORMAT,
     "another size",
     {{Q "lora_down.weight", ITH_F32, {2, WIDTH}, 0}, {Q "lora_up.weight", ITH_F32, {51, 2}, 0}},
     NULL},
    {ITH_ERR_FORMAT,
     "two ranks, 2 and 3",
     {{Q "lora_down.weight", ITH_F32, {2, WIDTH}, 0}, {Q "lora_up.weight", ITH_F32, {WIDTH, 3}, 0}},
     NULL},
    {ITH_OK, "", {{Q "lora_A.a.weight", ITH_F32, {2, WIDTH}, 0}, {Q "lora_B.a.weight", ITH_F32, {WIDTH, 2}, 0}}, NULL},
    {ITH_ERR_FORMAT,
     "two adapters",
     {{Q "lora_A.a.weight", ITH_F32, {2, WIDTH}, 0}, {Q "lora_B.b.weight", ITH_F32, {WIDTH, 2}, 0}},
     NULL},
    {ITH_ERR_FORMAT,
     "two adapters",
     {{Q "lora_A.weight", ITH_F32, {2, WIDTH}, 0}, {Q "lora_B.b.weight", ITH_F32, {WIDTH, 2}, 0}},
     NULL},
    {ITH_ERR_FORMAT,
     "two adapters",
     {{Q "lora_A.a.weight", ITH_F32, {2, WIDTH}, 0},
      {Q "lora_B.a.weight", ITH_F32, {WIDTH, 2}, 0},
      {Q "lora_B.b.bias", ITH_F32, {WIDTH}, 0}},
     NULL},
    {ITH_ERR_FORMAT,
     "instead of [rank, inputs]",
     {{Q "lora_down.weight", ITH_F32, {WIDTH}, 0}, {Q "lora_up.weight", ITH_F32, {WIDTH, 1}, 0}},
     NULL},
    {ITH_ERR_FORMAT, "alpha is one number", {PAIR, {Q "alpha", ITH_F32, {2}, 1}}, NULL},
    {ITH_ERR_FORMAT, "alpha of 'blocks.0.attn1.to_q' is not finite", {PAIR, {Q "alpha", ITH_F32, {0}, NAN}}, NULL},
    {ITH_ERR_FORMAT, "another size", {{Q "diff", ITH_F32, {WIDTH, 49}, 0}}, NULL},
    {ITH_ERR_FORMAT,
     "another size", /* turned round */
     {{"diffusion_model.blocks.0.ffn.0.diff", ITH_F32, {WIDTH, FFN}, 0}},
     NULL},
    {ITH_OK, "", {{"diffusion_model.blocks.0.ffn.0.diff", ITH_F32, {FFN, WIDTH}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "changes nothing", {PAIR, {Q "diff_m", ITH_F32, {WIDTH}, 0}}, NULL},
    {ITH_ERR_FORMAT, "asks for 50 numbers", {{Q "diff_b", ITH_F32, {49}, 0}}, NULL},
    {ITH_ERR_FORMAT, "asks for 300 numbers", {{"diffusion_model.blocks.0.diff_m", ITH_F32, {6, 49}, 0}}, NULL},
    {ITH_ERR_UNSUPPORTED, "F64", {{Q "diff_b", ITH_F64, {WIDTH}, 0}}, NULL},
    {ITH_ERR_FORMAT, "has no tensors", {{NULL, ITH_F32, {0}, 0}}, NULL},
    {ITH_ERR_FORMAT, "not valid JSON", {PAIR}, "{"},
    {ITH_ERR_UNSUPPORTED, "DoRA", {PAIR}, "{\"transformer.use_dora\": true}"},
    {ITH_ERR_UNSUPPORTED, "DoRA", {PAIR}, "{\"use_dora\": true}"},
    {ITH_OK, "", {PAIR}, "{\"transformer.init_lora_weights\": true}"},
    {ITH_OK, "", {PAIR}, "{\"init_lora_weights\": \"gaussian\"}"},
    {ITH_ERR_UNSUPPORTED, "\"pissa_niter_4\"", {PAIR}, "{\"transformer.init_lora_weights\": \"pissa_niter_4\"}"},
    {ITH_ERR_UNSUPPORTED, "init_lora_weights is \"olora\"", {PAIR}, "{\"init_lora_weights\": \"olora\"}"},
    {ITH_OK, "", {PAIR}, "{\"init_lora_weights\": \"mica\"}"},
    {ITH_ERR_UNSUPPORTED, "use_qalora is true; only plain LoRA", {PAIR}, "{\"use_qalora\": true}"},
    {ITH_ERR_UNSUPPORTED, "use_bdlora is {\"nblocks\":2}", {PAIR}, "{\"transformer.use_bdlora\": {\"nblocks\": 2}}"},
    {ITH_ERR_UNSUPPORTED, "layer_replication is [[0,1],[0,1]]", {PAIR}, "{\"layer_replication\": [[0, 1], [0, 1]]}"},
    {ITH_ERR_UNSUPPORTED, "alora_invocation_tokens is [3]", {PAIR}, "{\"transformer.alora_invocation_tokens\": [3]}"},
    {ITH_ERR_UNSUPPORTED, "arrow_config is {\"top_k\":3}", {PAIR}, "{\"arrow_config\": {\"top_k\": 3}}"},
    {ITH_ERR_UNSUPPORTED, "peft_type is \"LOHA\"; only plain LoRA", {PAIR}, "{\"transformer.peft_type\": \"LOHA\"}"},
    {ITH_OK, "", {PAIR}, "{\"transformer.peft_type\": \"LORA\", \"transformer.use_bdlora\": null}"},
    {ITH_OK,
     "",
     {PAIR},
     "{\"peft_type\": \"LORA\", \"use_qalora\": false, \"qalora_group_size\": 16, \"layer_replication\": [], "
     "\"use_bdlora\": null, \"arrow_config\": null, \"alora_invocation_tokens\": null, \"peft_version\": \"0.21.2\"}"},
    {ITH_ERR_FORMAT, "lora_alpha", {PAIR}, "{\"transformer.lora_alpha\": \"8\"}"},
    {ITH_ERR_FORMAT, "not finite", {PAIR}, "{\"transformer.lora_alpha\": 1e308}"},
    {ITH_ERR_FORMAT, "alpha_pattern", {PAIR}, "{\"transformer.alpha_pattern\": [1]}"},
    {ITH_ERR_FORMAT, "to_q", {PAIR}, "{\"transformer.alpha_pattern\": {\"to_q\": \"4\"}}"},
    {ITH_ERR_UNSUPPORTED,
     "'blocks\\.[0-5].*to_q' is a regular expression",
     {PAIR},
     "{\"transformer.alpha_pattern\": {\"blocks\\\\.[0-5].*to_q\": 4}}"},
};

static void write_lie(const lie *l, const char *path)
{
    static float numbers[WIDTH * 60];
    ith_tensor tensors[TENSORS];
    int64_t count = 0;
    const char *key = "lora_adapter_metadata";
    for (int i = 0; i < TENSORS && l->tensors[i].name; i++) {
        const int64_t *shape = l->tensors[i].shape;
        ith_tensor *t = &tensors[count++];
        *t = (ith_tensor)ITH_TENSOR_INIT;
        t->name = l->tensors[i].name, t->dtype = l->tensors[i].type, t->data = numbers;
        t->dims = shape[1] ? 2 : shape[0] ? 1 : 0;
        t->shape[0] = shape[0], t->shape[1] = shape[1];
        t->bytes = ith_dtype_bytes(t->dtype) * (t->dims ? shape[0] * (shape[1] ? shape[1] : 1) : 1);
        if (!t->dims)
            t->data = &l->tensors[i].value;
    }
    check(context, ith_tensor_file_write(context, path, tensors, count, &key, &l->settings, l->settings ? 1 : 0));
}

/* Opens a LoRA and checks it with the small model. */
static ith_status try_file(const char *path, double strength)
{
    const ith_lora_source source = {.path = path, .strength = strength};
    ith_lora *lora = NULL;
    ith_dit *dit = NULL;
    ith_status status = ith_lora_open(context, &source, 1, &lora);
    if (!status) {
        const ith_dit_choices choices = {.types = number_kind(OPERANDS_F32), .lora = lora};
        status = open_dit_with(context, SMALL, &choices, &dit);
    }
    ith_dit_free(context, &dit);
    ith_lora_close(&lora);
    return status;
}

static void lies_are_found(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const char *path = temporary_path(folder, "lie.safetensors");
        write_lie(&lies[i], path);
        if (lies[i].status == ITH_OK)
            check(context, try_file(path, 1));
        else
            REFUSED_AS(lies[i].status, context, lies[i].word, try_file(path, 1));
        if (lies[i].status != ITH_OK && !strstr(ith_context_error(context), "lie.safetensors"))
            fail_msg("no name of the file: %s", ith_context_error(context));
    }
    REFUSED_AS(ITH_ERR_IO, context, "missing", try_file(temporary_path(folder, "missing"), 1));
    REFUSED(context, "finite", try_file(path_of("peft"), NAN));
    REFUSED(context, "finite", try_file(path_of("peft"), -INFINITY));
    REFUSED(context, "finite", try_file(path_of("peft"), 1e39)); /* factors are f32 */
    const lie large = {ITH_OK, "", {PAIR, {Q "alpha", ITH_F32, {0}, 3e38F}}, NULL};
    const char *path = temporary_path(folder, "large.safetensors");
    write_lie(&large, path);
    REFUSED_AS(ITH_ERR_FORMAT, context, "strength", try_file(path, 100));
    temporary_remove(folder);
}

/* A matrix without rows has no rank by which alpha could be divided. */
static void empty_matrices_are_refused(void **state)
{
    (void)state;
    static const int64_t shapes[][2][2] = {{{0, WIDTH}, {WIDTH, 0}}, {{2, WIDTH}, {0, 2}}, {{2, WIDTH}, {WIDTH, 0}}};
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "empty.safetensors");
    static float numbers[2 * WIDTH];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ith_tensor tensors[2] = {ITH_TENSOR_INIT, ITH_TENSOR_INIT};
        tensors[0].name = Q "lora_A.weight", tensors[1].name = Q "lora_B.weight";
        for (int k = 0; k < 2; k++) {
            tensors[k].dtype = ITH_F32, tensors[k].data = numbers, tensors[k].dims = 2;
            memcpy(tensors[k].shape, shapes[i][k], sizeof shapes[i][k]);
            tensors[k].bytes = shapes[i][k][0] * shapes[i][k][1] * (int64_t)sizeof *numbers;
        }
        check(context, ith_tensor_file_write(context, path, tensors, 2, NULL, NULL, 0));
        REFUSED_AS(ITH_ERR_FORMAT, context, "empty.safetensors", try_file(path, 1));
    }
    temporary_remove(folder);
}

/* Rows are merged in pieces. The numbers are whole, so that sums in double have the same bits. */
static void long_rows_are_merged(void **state)
{
    (void)state;
    enum { ROWS = 3, RANK = 2, IN = 700 };
    static float whole[ROWS * IN], down[RANK * IN], up[ROWS * RANK], row[IN];
    for (int i = 0; i < ROWS * IN; i++)
        whole[i] = (float)(i % 211);
    for (int i = 0; i < RANK * IN; i++)
        down[i] = (float)(i % 97);
    for (int i = 0; i < ROWS * RANK; i++)
        up[i] = (float)(i + 1);
    const ith_linear_addition additions[] = {
        {.factor = 2, .up = {.data = whole, .type = ITH_F32, .rows = ROWS}},
        {.factor = 3,
         .down = {.data = down, .type = ITH_F32, .rows = RANK},
         .up = {.data = up, .type = ITH_F32, .rows = ROWS}},
    };
    for (int64_t r = 0; r < ROWS; r++) {
        for (int i = 0; i < IN; i++)
            row[i] = (float)i;
        check(context, ith_lora_merge_row(context, additions, 2, r, IN, row));
        for (int64_t i = 0; i < IN; i++) {
            double wanted = (double)i + 2 * (double)whole[r * IN + i];
            for (int64_t k = 0; k < RANK; k++)
                wanted += 3 * (double)up[r * RANK + k] * (double)down[k * IN + i];
            if ((double)row[i] != wanted)
                fail_msg("row %lld, number %lld: %g instead of %g", (long long)r, (long long)i, (double)row[i], wanted);
        }
    }
}

static const ith_lora_target to_q = {"blocks.0.attn1.to_q", 0, WIDTH, WIDTH};

/* alpha / rank, or with use_rslora alpha / sqrt(rank). An alpha of alpha_pattern counts before lora_alpha, also
 * with the older names of diffusers. */
static void settings_of_peft_set_the_factor(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        double factor;
    } rows[] = {
        {NULL, 1},
        {"{\"transformer.lora_alpha\": 8}", 8 / 2.0},
        {"{\"transformer.lora_alpha\": 8, \"transformer.use_rslora\": true}", 8 / 1.4142135623730951},
        {"{\"transformer.lora_alpha\": 8, \"transformer.alpha_pattern\": {\"to_q\": 6}}", 6 / 2.0},
        {"{\"transformer.alpha_pattern\": {\"attn1.to_q\": 10, \"to_q\": 6}}", 10 / 2.0},
        {"{\"transformer.lora_alpha\": 8, \"transformer.alpha_pattern\": {\"to_k\": 6}}", 8 / 2.0},
        {"{\"transformer.alpha_pattern\": {\"self_attn.q\": 6}}", 6 / 2.0}, /* the file's own name */
        {"{\"transformer.alpha_pattern\": {\"to_q\": 6}, \"transformer.use_rslora\": true}", 6 / 1.4142135623730951},
    };
    static const lie pairs[] = {
        {ITH_OK, "", {PAIR}, NULL},
        {ITH_OK,
         "",
         {{Q "lora.down.weight", ITH_F32, {2, WIDTH}, 0}, {Q "lora.up.weight", ITH_F32, {WIDTH, 2}, 0}},
         NULL}};
    char *folder = temporary_folder();
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const char *path = temporary_path(folder, "settings.safetensors");
        lie file = pairs[i % 2];
        file.settings = rows[i / 2].settings;
        const ith_lora_source source = {.path = path, .strength = 0.5};
        ith_lora *lora = NULL;
        ith_linear_addition found[1];
        int64_t count = 0;
        write_lie(&file, path);
        check(context, ith_lora_open(context, &source, 1, &lora));
        check(context, ith_lora_matrix(context, lora, &to_q, false, found, &count));
        assert_int_equal(count, 1);
        assert_true(fabs((double)found[0].factor - 0.5 * rows[i / 2].factor) < 1e-6);
        ith_lora_close(&lora);
    }
    temporary_remove(folder);
}

/* PEFT writes the settings into adapter_config.json beside adapter_model.safetensors. Its patterns have the names of
 * the file's own modules. */
static void settings_beside_a_file_set_the_factor(void **state)
{
    (void)state;
    static const struct {
        const char *name, *settings;
        double factor;
    } rows[] = {
        {"adapter_model.safetensors", NULL, 1},
        {"adapter_model.safetensors", "{\"lora_alpha\": 8, \"alpha_pattern\": {}}", 8 / 2.0},
        {"adapter_model.safetensors", "{\"lora_alpha\": 8, \"use_rslora\": true}", 8 / 1.4142135623730951},
        {"adapter_model.safetensors", "{\"lora_alpha\": 8, \"alpha_pattern\": {\"self_attn.q\": 6}}", 6 / 2.0},
        {"adapter_model.safetensors", "{\"alpha_pattern\": {\"^blocks.0.self_attn.q\": 6}}", 6 / 2.0},
        {"other.safetensors", "{\"lora_alpha\": 8}", 1},
    };
    static const lie file = {ITH_OK,
                             "",
                             {{"base_model.model.blocks.0.self_attn.q.lora_A.weight", ITH_F32, {2, WIDTH}, 0},
                              {"base_model.model.blocks.0.self_attn.q.lora_B.weight", ITH_F32, {WIDTH, 2}, 0}},
                             NULL};
    static const char dora[] = "{\"use_dora\": true}";
    char *folder = temporary_folder(), config[200], peft[200];
    snprintf(config, sizeof config, "%s/adapter_config.json", folder);
    snprintf(peft, sizeof peft, "%s/adapter_model.safetensors", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = temporary_path(folder, rows[i].name);
        const ith_lora_source source = {.path = path, .strength = 0.5};
        ith_lora *lora = NULL;
        ith_linear_addition found[1];
        int64_t count = 0;
        write_lie(&file, path);
        if (rows[i].settings)
            temporary_write(config, rows[i].settings, strlen(rows[i].settings));
        check(context, ith_lora_open(context, &source, 1, &lora));
        check(context, ith_lora_matrix(context, lora, &to_q, false, found, &count));
        assert_int_equal(count, 1);
        if (!(fabs((double)found[0].factor - 0.5 * rows[i].factor) <= 1e-6))
            fail_msg("case %zu: a factor of %g", i, (double)found[0].factor);
        ith_lora_close(&lora);
    }
    temporary_write(config, dora, strlen(dora));
    REFUSED_AS(ITH_ERR_UNSUPPORTED, context, "DoRA", try_file(peft, 1));
    char before[PATH_MAX]; /* a name without a folder is a file of the working folder */
    temporary_require(getcwd(before, sizeof before) && chdir(folder) == 0, folder);
    REFUSED_AS(ITH_ERR_UNSUPPORTED, context, "DoRA", try_file("adapter_model.safetensors", 1));
    temporary_require(chdir(before) == 0, before);
    assert_int_equal(unlink(config), 0);
    assert_int_equal(symlink("nothing", config), 0);
    REFUSED_AS(ITH_ERR_IO, context, "adapter_config.json", try_file(peft, 1));
    assert_int_equal(unlink(config), 0);
    temporary_write(config, "{", 1);
    REFUSED_AS(ITH_ERR_FORMAT, context, "adapter_config.json", try_file(peft, 1));
    temporary_remove(folder);
}

static void too_many_files_are_refused(void **state)
{
    (void)state;
    ith_lora_source sources[ITH_LORA_FILES_MAX + 1];
    ith_lora *lora = NULL;
    for (int i = 0; i <= ITH_LORA_FILES_MAX; i++)
        sources[i] = (ith_lora_source){.path = path_of("kohya"), .strength = 0.1};
    check(context, ith_lora_open(context, sources, ITH_LORA_FILES_MAX, &lora));
    ith_dit *dit = open_with(lora, OPERANDS_F32, ITH_LINEAR_KEEP_NONE);
    ith_dit_free(context, &dit);
    ith_lora_close(&lora);
    REFUSED(context, "at most 16", ith_lora_open(context, sources, ITH_LORA_FILES_MAX + 1, &lora));
}

/* If a file is cut or changed while it is mapped, there is an error that names it. */
static void changed_files_are_found(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    size_t bytes = 0;
    char *content = temporary_read(path_of("kohya"), &bytes);
    const char *path = temporary_path(folder, "cut.safetensors");
    const ith_lora_source source = {.path = path, .strength = 1};
    ith_lora *lora = NULL;
    call c;
    open_call(&c);
    temporary_write(path, content, bytes);
    check(context, ith_lora_open(context, &source, 1, &lora));
    check(context, ith_lora_check_unchanged(context, lora));
    temporary_write(path, content, bytes - 1);
    REFUSED_AS(ITH_ERR_IO, context, "cut.safetensors", ith_lora_check_unchanged(context, lora));
    ith_lora_close(&lora);
    ith_tensor_file_close(&c.run);
    free(content);
    temporary_remove(folder);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, context_set_up, context_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_form_is_that_of_diffusers),
        TEST(strengths_add_up),
        TEST(alphas_of_all_types_are_the_same),
        TEST(older_names_are_the_same),
        TEST(the_first_pattern_counts),
        TEST(settings_need_no_prefix),
        TEST(memory_is_predicted),
        TEST(lies_are_found),
        TEST(empty_matrices_are_refused),
        TEST(long_rows_are_merged),
        TEST(settings_of_peft_set_the_factor),
        TEST(settings_beside_a_file_set_the_factor),
        TEST(too_many_files_are_refused),
        TEST(changed_files_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
