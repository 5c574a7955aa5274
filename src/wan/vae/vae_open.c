/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the decoder's weights by their names in the file, as diffusers' AutoencoderKLWan writes them, in the order of
 * the computation. One function lists them all: to check the file, to count memory, and to read (weights.h). */
#include "../weights.h"
#include "vae_weights.h"

#include <stdio.h>

typedef struct module_name {
    char text[96];
} module_name;

static module_name name_of(const char *module, const char *part)
{
    module_name name;
    snprintf(name.text, sizeof name.text, "%.60s%.32s", module, part);
    return name;
}

/* Takes the weight and the bias of a convolution or a linear layer. dims: dimensions of the weight, 5 for convolutions
 * over frames, 4 for convolutions over one picture. */
static ith_vae_filter filter_of(ith_weights *w, ith_vae *vae, const char *module, int dims, int64_t in, int64_t out,
                                int64_t frames, int64_t kernel)
{
    const int64_t video[] = {out, in, frames, kernel, kernel}, picture[] = {out, in, kernel, kernel};
    const ith_tensor *weight = ith_weights_tensor(w, module, dims, dims == 5 ? video : picture);
    vae->weight_bytes += weight ? weight->bytes : 0;
    return (ith_vae_filter){.weight = weight,
                            .bias = ith_weights_floats(w, name_of(module, ".bias").text, 1, &out),
                            .in = in,
                            .out = out,
                            .frames = frames,
                            .kernel = kernel};
}

/* Takes the scale (gamma) of a norm over the channels of each pixel. The file gives it 3 or 4 dimensions. */
static float *gamma_of(ith_weights *w, const char *module, const char *part, int dims, int64_t channels)
{
    const int64_t shape[] = {channels, 1, 1, 1};
    return ith_weights_floats(w, name_of(module, part).text, dims, shape);
}

/* Takes the weights of a residual block. Only a block that changes the number of channels has a shortcut. */
static void name_residual(ith_weights *w, ith_vae *vae, const char *module, int64_t in, int64_t out,
                          ith_vae_residual *residual)
{
    residual->norm1 = gamma_of(w, module, ".norm1.gamma", 4, in);
    residual->conv1 = filter_of(w, vae, name_of(module, ".conv1").text, 5, in, out, ITH_VAE_HISTORY, 3);
    residual->norm2 = gamma_of(w, module, ".norm2.gamma", 4, out);
    residual->conv2 = filter_of(w, vae, name_of(module, ".conv2").text, 5, out, out, ITH_VAE_HISTORY, 3);
    if (in != out)
        residual->shortcut = filter_of(w, vae, name_of(module, ".conv_shortcut").text, 5, in, out, 1, 1);
}

/* Takes the weights of the layers at the size of the latents: a residual block, the attention, a residual block. */
static void name_middle(ith_weights *w, ith_vae *vae)
{
    const int64_t channels = ith_vae_level_in(&vae->config, 0);
    name_residual(w, vae, "decoder.mid_block.resnets.0", channels, channels, &vae->before);
    vae->attention_norm = gamma_of(w, "decoder.mid_block.attentions.0", ".norm.gamma", 3, channels);
    vae->qkv = filter_of(w, vae, "decoder.mid_block.attentions.0.to_qkv", 4, channels, 3 * channels, 1, 1);
    vae->proj = filter_of(w, vae, "decoder.mid_block.attentions.0.proj", 4, channels, channels, 1, 1);
    name_residual(w, vae, "decoder.mid_block.resnets.1", channels, channels, &vae->after);
}

/* Takes the weights of a level (the layers at one picture size). Its first residual block changes the number of
 * channels from `in` to `out`. The upsampling convolution halves `out`. */
static void name_level(ith_weights *w, ith_vae *vae, int64_t index)
{
    const ith_vae_config *config = &vae->config;
    const int64_t out = ith_vae_level_out(config, index);
    ith_vae_level *level = &vae->levels[index];
    char module[64];
    level->in = ith_vae_level_in(config, index), level->out = out;
    level->residuals = vae->residuals + index * (config->res_blocks + 1);
    for (int64_t i = 0; i <= config->res_blocks; i++) {
        snprintf(module, sizeof module, "decoder.up_blocks.%d.resnets.%d", (int)index, (int)i);
        name_residual(w, vae, module, i ? out : level->in, out, &level->residuals[i]);
    }
    if (index == config->levels - 1)
        return;
    snprintf(module, sizeof module, "decoder.up_blocks.%d.upsamplers.0", (int)index);
    level->resample = filter_of(w, vae, name_of(module, ".resample.1").text, 4, out, out / 2, 1, 3);
    if (config->temporal_up[index])
        level->time = filter_of(w, vae, name_of(module, ".time_conv").text, 5, out, 2 * out, ITH_VAE_HISTORY, 1);
}

static void name_weights(ith_weights *w, void *model)
{
    ith_vae *vae = model;
    const ith_vae_config *config = &vae->config;
    const int64_t last = ith_vae_level_out(config, config->levels - 1);
    vae->post_quant = filter_of(w, vae, "post_quant_conv", 5, config->z_dim, config->z_dim, 1, 1);
    vae->in = filter_of(w, vae, "decoder.conv_in", 5, config->z_dim, ith_vae_level_in(config, 0), ITH_VAE_HISTORY, 3);
    name_middle(w, vae);
    for (int64_t i = 0; i < config->levels; i++)
        name_level(w, vae, i);
    vae->norm_out = gamma_of(w, "decoder", ".norm_out.gamma", 4, last);
    vae->out = filter_of(w, vae, "decoder.conv_out", 5, last, 3, ITH_VAE_HISTORY, 3);
    if (w->store) { /* decoding does not need the weights of the encoder */
        ith_store_skip(w->store, "encoder.");
        ith_store_skip(w->store, "quant_conv.");
    }
}

/* The bytes of an ith_vae, whose last member is the array of all residual blocks. */
static int64_t struct_bytes(const ith_vae_config *config)
{
    int64_t residuals = config->levels * (config->res_blocks + 1);
    return (int64_t)sizeof(ith_vae) + residuals * (int64_t)sizeof(ith_vae_residual);
}

ith_status ith_vae_create(ith_context *context, const ith_vae_config *config, ith_operand_types types, ith_vae **out)
{
    *out = ith_alloc_zero(context, 1, struct_bytes(config), "the autoencoder");
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->config = *config, (*out)->types = types;
    return ith_weights_outline(context, false, name_weights, *out, &(*out)->memory);
}

int64_t ith_vae_bytes(const ith_vae *vae)
{
    return struct_bytes(&vae->config) + ITH_ALLOC_HEADER + vae->memory.bytes;
}

/* Makes an autoencoder without weights, and opens its weight files. */
static ith_status open_vae(ith_context *context, const char *folder, ith_operand_types types, ith_vae **out)
{
    ith_vae_config config;
    *out = NULL;
    ith_status status = ith_vae_config_read(context, folder, &config);
    if (!status)
        status = ith_vae_create(context, &config, types, out);
    return status ? status
                  : ith_store_open(context, folder, "diffusion_pytorch_model", ITH_STORE_INDEX_FIRST,
                                   &(*out)->memory.store);
}

ith_status ith_vae_check(ith_context *context, const char *folder, ith_store **store)
{
    ith_vae *vae = NULL;
    ith_status status = open_vae(context, folder, ith_operands_f32(), &vae);
    if (!status)
        status = ith_weights_check(context, vae->memory.store, name_weights, vae);
    if (!status && store)
        *store = vae->memory.store, vae->memory.store = NULL;
    ith_vae_free(context, &vae);
    return status;
}

ith_status ith_vae_open(ith_context *context, const char *folder, ith_operand_types types, ith_vae **out)
{
    ith_status status = open_vae(context, folder, types, out);
    if (!status)
        status = ith_weights_take(context, false, false, name_weights, *out, &(*out)->memory);
    if (status)
        ith_vae_free(context, out);
    return status;
}

ith_status ith_vae_make_random(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                               ith_dtype type, ith_vae **out)
{
    ith_status status = ith_vae_create(context, config, types, out);
    if (!status)
        status = ith_store_open_random(context, type, &(*out)->memory.store);
    if (!status)
        status = ith_weights_take(context, false, false, name_weights, *out, &(*out)->memory);
    if (status)
        ith_vae_free(context, out);
    return status;
}

ith_status ith_vae_random_bytes(ith_context *context, const ith_vae_config *config, ith_dtype type, int64_t *bytes)
{
    ith_vae *vae = NULL;
    ith_status status = ith_vae_create(context, config, ith_operands_f32(), &vae);
    if (!status)
        status = ith_store_open_random(context, type, &vae->memory.store);
    if (!status)
        status = ith_weights_check(context, vae->memory.store, name_weights, vae);
    *bytes = status ? 0 : ith_store_random_bytes(vae->memory.store);
    ith_vae_free(context, &vae);
    return status;
}

void ith_vae_free(ith_context *context, ith_vae **vae)
{
    if (!vae || !*vae)
        return;
    ith_weights_free(context, &(*vae)->memory);
    ith_free(context, *vae);
    *vae = NULL;
}

const ith_vae_config *ith_vae_config_of(const ith_vae *vae)
{
    return &vae->config;
}
