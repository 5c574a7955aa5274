/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a tensor for each name and shape that the engine asks a store for. Programs that use this file are linked with
 * --wrap=ith_store_take. */
#include "support/engine/tiny_model.h"

#include "support/fixture.h"
#include "support/random.h"
#include "support/temporary.h"
#include "wan/dit/dit.h"
#include "wan/text/text_encoder.h"
#include "wan/vae/vae.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_TENSORS 400
#define VOCAB 1536 /* of the tokenizer in models/shapes */
#define HEADS 4
#define DIM 32
#define TEXT_DIM 16
#define FFN 24

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* The tensors that have been asked for since the list was emptied. */
static struct {
    ith_tensor tensors[MOST_TENSORS];
    char names[MOST_TENSORS][128];
    int64_t count;
} asked;

ith_status __real_ith_store_take(ith_context *ctx, ith_store *store, const char *name, int dims, const int64_t *shape,
                                 const ith_tensor **out);
ith_status __wrap_ith_store_take(ith_context *ctx, ith_store *store, const char *name, int dims, const int64_t *shape,
                                 const ith_tensor **out);

ith_status __wrap_ith_store_take(ith_context *ctx, ith_store *store, const char *name, int dims, const int64_t *shape,
                                 const ith_tensor **out)
{
    if (ith_store_random_bytes(store) && asked.count < MOST_TENSORS) {
        ith_tensor *t = &asked.tensors[asked.count];
        snprintf(asked.names[asked.count], sizeof asked.names[0], "%s", name);
        *t = (ith_tensor)ITH_TENSOR_INIT;
        t->name = asked.names[asked.count++], t->dtype = ITH_F32, t->dims = dims, t->bytes = 4;
        for (int i = 0; i < dims; i++)
            t->bytes *= t->shape[i] = shape[i];
    }
    return __real_ith_store_take(ctx, store, name, dims, shape, out);
}

/* Whether a tensor is the scale of a norm. */
static bool is_scale(const char *name)
{
    return strstr(name, "norm") && !strstr(name, ".bias");
}

/* Writes the tensors that have been asked for, with random numbers: a layer's results are about as large as its inputs.
 * Empties the list. */
static void write_asked(ith_context *ctx, uint64_t *seed, const char *path)
{
    assert_true(asked.count > 0 && asked.count < MOST_TENSORS);
    for (int64_t i = 0; i < asked.count; i++) {
        ith_tensor *t = &asked.tensors[i];
        const int64_t count = t->bytes / 4;
        float *numbers = malloc((size_t)t->bytes);
        const float scale = t->dims > 1 ? 1.7f / sqrtf((float)count / (float)t->shape[0]) : 0.1f;
        for (int64_t k = 0; k < count; k++)
            numbers[k] = scale * random_signed(seed) + (is_scale(t->name) ? 1 : 0);
        t->data = numbers;
    }
    check(ctx, ith_tensor_file_write(ctx, path, asked.tensors, asked.count, NULL, NULL, 0));
    for (int64_t i = 0; i < asked.count; i++)
        free((void *)(uintptr_t)asked.tensors[i].data);
    asked.count = 0;
}

/* ---- Components -------------------------------------------------------------------------------------------------- */

/* Returns the path FOLDER/NAME, and makes its folder. The path is valid until the next call. */
static const char *place(const char *folder, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
    return path;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    temporary_write(place(folder, name), text, strlen(text));
}

static void copy_file(const char *folder, const char *name)
{
    char from[128];
    size_t bytes = 0;
    snprintf(from, sizeof from, "../models/shapes/%s", name);
    char *data = temporary_read(from, &bytes);
    temporary_write(place(folder, name), data, bytes);
    free(data);
}

static void write_dit(ith_context *ctx, tiny_kind kind, uint64_t *seed, const char *folder, const char *part)
{
    char name[64], text[512], own[512];
    ith_dit_config config;
    ith_store *store = NULL;
    snprintf(name, sizeof name, "%s/config.json", part);
    snprintf(text, sizeof text,
             "{\"_class_name\": \"WanTransformer3DModel\", \"num_attention_heads\": %d, \"attention_head_dim\": %d, "
             "\"ffn_dim\": %d, \"num_layers\": 1, \"text_dim\": %d, \"freq_dim\": 8, \"in_channels\": %d, "
             "\"out_channels\": 4}",
             HEADS, DIM / HEADS, FFN, TEXT_DIM, kind == TINY_IMAGE ? 12 : 4);
    write_text(folder, name, text);
    snprintf(own, sizeof own, "%s/%s", folder, part);
    check(ctx, ith_dit_config_read(ctx, own, &config));
    check(ctx, ith_store_open_random(ctx, ITH_F32, &store));
    check(ctx, ith_dit_check(ctx, &config, store, NULL));
    ith_store_close(&store);
    snprintf(name, sizeof name, "%s/diffusion_pytorch_model.safetensors", part);
    write_asked(ctx, seed, place(folder, name));
}

static void write_text_encoder(ith_context *ctx, uint64_t *seed, const char *folder)
{
    char text[512], own[512];
    ith_text_config config;
    ith_store *store = NULL;
    snprintf(text, sizeof text,
             "{\"model_type\": \"umt5\", \"feed_forward_proj\": \"gated-gelu\", \"vocab_size\": %d, \"d_model\": %d, "
             "\"d_kv\": 8, \"d_ff\": %d, \"num_layers\": 1, \"num_heads\": 2, \"is_gated_act\": true, "
             "\"dense_act_fn\": \"gelu_new\"}",
             VOCAB, TEXT_DIM, FFN);
    write_text(folder, "text_encoder/config.json", text);
    snprintf(own, sizeof own, "%s/text_encoder", folder);
    check(ctx, ith_text_config_read(ctx, own, &config));
    check(ctx, ith_store_open_random(ctx, ITH_F32, &store));
    check(ctx, ith_text_encoder_check(ctx, &config, store));
    ith_store_close(&store);
    write_asked(ctx, seed, place(folder, "text_encoder/model.safetensors"));
}

static void write_vae(ith_context *ctx, tiny_kind kind, uint64_t *seed, const char *folder)
{
    static const char wan_21[] = "\"dim_mult\": [1, 1, 2, 2], \"temperal_downsample\": [false, true, true], "
                                 "\"scale_factor_spatial\": 8",
                      wan_22[] = "\"dim_mult\": [1, 2, 2], \"temperal_downsample\": [true, true], \"is_residual\": "
                                 "true, \"patch_size\": 2, \"in_channels\": 12, \"out_channels\": 12, "
                                 "\"scale_factor_spatial\": 8";
    char text[512], own[512];
    ith_vae_config config;
    ith_store *store = NULL;
    snprintf(text, sizeof text,
             "{\"_class_name\": \"AutoencoderKLWan\", \"base_dim\": 4, \"z_dim\": 4, \"num_res_blocks\": 1, "
             "\"latents_mean\": [-0.1, 0.2, 0, 0.1], \"latents_std\": [1.5, 0.7, 1, 0.9], %s}",
             kind == TINY_TEXT_IMAGE ? wan_22 : wan_21);
    write_text(folder, "vae/config.json", text);
    snprintf(own, sizeof own, "%s/vae", folder);
    check(ctx, ith_vae_config_read(ctx, own, &config));
    check(ctx, ith_store_open_random(ctx, ITH_F32, &store));
    check(ctx, ith_vae_check(ctx, &config, ITH_VAE_DECODER, store));
    check(ctx, ith_vae_check(ctx, &config, ITH_VAE_ENCODER, store));
    ith_store_close(&store);
    write_asked(ctx, seed, place(folder, "vae/diffusion_pytorch_model.safetensors"));
}

static void write_index(tiny_kind kind, const char *folder)
{
    static const char dit[] = "[\"diffusers\", \"WanTransformer3DModel\"]";
    const bool two = kind != TINY_TEXT_IMAGE;
    char text[1024];
    snprintf(text, sizeof text,
             "{\"_class_name\": \"%s\", \"transformer\": %s, \"transformer_2\": %s, \"boundary_ratio\": %s, "
             "\"expand_timesteps\": %s, \"vae\": [\"diffusers\", \"AutoencoderKLWan\"], "
             "\"text_encoder\": [\"transformers\", \"UMT5EncoderModel\"], "
             "\"tokenizer\": [\"transformers\", \"T5TokenizerFast\"], "
             "\"scheduler\": [\"diffusers\", \"UniPCMultistepScheduler\"]}",
             kind == TINY_IMAGE ? "WanImageToVideoPipeline" : "WanPipeline", dit, two ? dit : "[null, null]",
             two ? "0.7" : "null", kind == TINY_TEXT_IMAGE ? "true" : "false");
    write_text(folder, "model_index.json", text);
}

void tiny_model_write(ith_context *ctx, tiny_kind kind, const char *folder)
{
    uint64_t seed = 1 + (uint64_t)kind;
    write_index(kind, folder);
    copy_file(folder, "scheduler/scheduler_config.json");
    copy_file(folder, "tokenizer/spiece.model");
    copy_file(folder, "tokenizer/tokenizer_config.json");
    copy_file(folder, "tokenizer/special_tokens_map.json");
    write_text_encoder(ctx, &seed, folder);
    write_dit(ctx, kind, &seed, folder, "transformer");
    if (kind != TINY_TEXT_IMAGE)
        write_dit(ctx, kind, &seed, folder, "transformer_2");
    write_vae(ctx, kind, &seed, folder);
}

void tiny_lora_write(ith_context *ctx, const char *path)
{
    static const char *const names[] = {
        "transformer.blocks.0.attn1.to_q.lora_A.weight", "transformer.blocks.0.attn1.to_q.lora_B.weight",
        "transformer.blocks.0.ffn.net.2.lora_A.weight", "transformer.blocks.0.ffn.net.2.lora_B.weight"};
    static const int64_t shapes[][2] = {{2, DIM}, {DIM, 2}, {2, FFN}, {DIM, 2}};
    uint64_t seed = 9;
    float *numbers = random_floats(&seed, 2 * (DIM + FFN));
    ith_tensor tensors[4];
    for (int i = 0; i < 4; i++) {
        tensors[i] = (ith_tensor)ITH_TENSOR_INIT;
        tensors[i].name = names[i], tensors[i].dtype = ITH_F32, tensors[i].dims = 2, tensors[i].data = numbers;
        memcpy(tensors[i].shape, shapes[i], sizeof shapes[i]);
        tensors[i].bytes = 4 * shapes[i][0] * shapes[i][1];
    }
    check(ctx, ith_tensor_file_write(ctx, path, tensors, 4, NULL, NULL, 0));
    free(numbers);
}
