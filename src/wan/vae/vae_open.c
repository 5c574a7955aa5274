/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the weights of the encoder or of the decoder by their names in the file, as diffusers' AutoencoderKLWan writes
 * them, in the order of the computation. One function lists them all: to check the file, to count memory, and to read
 * (weights.h). */
#include "../part/weights.h"
#include "vae_weights.h"

#include <stdio.h>

/* The name of a module or a tensor, returned by value. */
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

/* Takes the weights of the layers in the middle: a residual block, the attention, a residual block. */
static void name_middle(ith_weights *w, ith_vae *vae, int64_t channels)
{
    name_residual(w, vae, "mid_block.resnets.0", channels, channels, &vae->before);
    vae->attention_norm = gamma_of(w, "mid_block.attentions.0", ".norm.gamma", 3, channels);
    vae->qkv = filter_of(w, vae, "mid_block.attentions.0.to_qkv", 4, channels, 3 * channels, 1, 1);
    vae->proj = filter_of(w, vae, "mid_block.attentions.0.proj", 4, channels, channels, 1, 1);
    name_residual(w, vae, "mid_block.resnets.1", channels, channels, &vae->after);
}

/* Sets the sizes of a level, and the place of its residual blocks. */
static ith_vae_level *begin_level(ith_vae *vae, int64_t index)
{
    ith_vae_level *level = &vae->levels[index];
    level->in = ith_vae_level_in(&vae->config, vae->half, index);
    level->out = ith_vae_level_out(&vae->config, vae->half, index);
    level->residuals = vae->residuals + index * ith_vae_level_blocks(&vae->config, vae->half);
    return level;
}

/* Takes the weights of a residual block of a level. The first one changes the number of channels. */
static void name_block(ith_weights *w, ith_vae *vae, const char *module, const ith_vae_level *level, int64_t block)
{
    name_residual(w, vae, module, block ? level->out : level->in, level->out, &level->residuals[block]);
}

/* ---- Decoder --------------------------------------------------------------------------------------------------- */

/* Takes the weights of a level of the decoder. */
static void name_up_level(ith_weights *w, ith_vae *vae, int64_t index)
{
    ith_vae_level *level = begin_level(vae, index);
    char module[64];
    for (int64_t i = 0; i < ith_vae_level_blocks(&vae->config, vae->half); i++) {
        snprintf(module, sizeof module, "up_blocks.%d.resnets.%d", (int)index, (int)i);
        name_block(w, vae, module, level, i);
    }
    if (index == vae->config.levels - 1)
        return;
    const bool time = ith_vae_level_has_time(&vae->config, vae->half, index);
    const int64_t out = level->out, upsampled = ith_vae_upsampled(&vae->config, index);
    snprintf(module, sizeof module, "up_blocks.%d.%s", (int)index, vae->config.residual ? "upsampler" : "upsamplers.0");
    level->resample = filter_of(w, vae, name_of(module, ".resample.1").text, 4, out, upsampled, 1, 3);
    if (time)
        level->time = filter_of(w, vae, name_of(module, ".time_conv").text, 5, out, 2 * out, ITH_VAE_HISTORY, 1);
    if (vae->config.residual)
        level->repeats = out * ith_vae_copies(time) / level->in;
}

static void name_decoder(ith_weights *w, ith_vae *vae)
{
    const ith_vae_config *config = &vae->config;
    const int64_t first = ith_vae_level_in(config, vae->half, 0);
    const int64_t last = ith_vae_level_out(config, vae->half, config->levels - 1);
    vae->quant = filter_of(w, vae, "post_quant_conv", 5, config->z_dim, config->z_dim, 1, 1);
    ith_weights_prefix(w, "decoder.");
    vae->in = filter_of(w, vae, "conv_in", 5, config->z_dim, first, ITH_VAE_HISTORY, 3);
    name_middle(w, vae, first);
    for (int64_t i = 0; i < config->levels; i++)
        name_up_level(w, vae, i);
    vae->norm_out = gamma_of(w, "norm_out", ".gamma", 4, last);
    vae->out = filter_of(w, vae, "conv_out", 5, last, ith_vae_patch_numbers(config), ITH_VAE_HISTORY, 3);
    if (w->store) { /* the other half */
        ith_store_skip(w->store, "encoder.");
        ith_store_skip(w->store, "quant_conv.");
    }
}

/* ---- Encoder --------------------------------------------------------------------------------------------------- */

/* Takes the weights of a level of the encoder. *number: the number of its first block in a file of Wan 2.1, which does
 * not number levels. */
static void name_down_level(ith_weights *w, ith_vae *vae, int64_t index, int *number)
{
    ith_vae_level *level = begin_level(vae, index);
    const bool residual = vae->config.residual;
    char module[64];
    if (residual)
        level->averaged = level->in * ith_vae_level_merges(&vae->config, index) / level->out;
    for (int64_t i = 0; i < ith_vae_level_blocks(&vae->config, vae->half); i++) {
        if (residual)
            snprintf(module, sizeof module, "down_blocks.%d.resnets.%d", (int)index, (int)i);
        else
            snprintf(module, sizeof module, "down_blocks.%d", (*number)++);
        name_block(w, vae, module, level, i);
    }
    if (index == vae->config.levels - 1)
        return;
    const int64_t out = level->out;
    if (residual)
        snprintf(module, sizeof module, "down_blocks.%d.downsampler", (int)index);
    else
        snprintf(module, sizeof module, "down_blocks.%d", (*number)++);
    level->resample = filter_of(w, vae, name_of(module, ".resample.1").text, 4, out, out, 1, 3);
    if (ith_vae_level_has_time(&vae->config, vae->half, index))
        level->time = filter_of(w, vae, name_of(module, ".time_conv").text, 5, out, out, ITH_VAE_HISTORY, 1);
}

/* The last convolution and quant_conv make the mean and the logarithm of the variance of each number of the latents.
 * Only the mean is needed: the first half of the channels of quant_conv. */
static void name_encoder(ith_weights *w, ith_vae *vae)
{
    const ith_vae_config *config = &vae->config;
    const int64_t last = ith_vae_level_out(config, vae->half, config->levels - 1);
    int number = 0;
    ith_weights_prefix(w, "encoder.");
    vae->in =
        filter_of(w, vae, "conv_in", 5, ith_vae_patch_numbers(config), config->encoder_base_dim, ITH_VAE_HISTORY, 3);
    for (int64_t i = 0; i < config->levels; i++)
        name_down_level(w, vae, i, &number);
    name_middle(w, vae, last);
    vae->norm_out = gamma_of(w, "norm_out", ".gamma", 4, last);
    vae->out = filter_of(w, vae, "conv_out", 5, last, 2 * config->z_dim, ITH_VAE_HISTORY, 3);
    ith_weights_prefix(w, "%s", "");
    vae->quant = filter_of(w, vae, "quant_conv", 5, 2 * config->z_dim, 2 * config->z_dim, 1, 1);
    vae->quant.out = config->z_dim;
    if (w->store) { /* the other half */
        ith_store_skip(w->store, "decoder.");
        ith_store_skip(w->store, "post_quant_conv.");
    }
}

/* ---- The autoencoder ------------------------------------------------------------------------------------------- */

static void name_weights(ith_weights *w, void *model)
{
    ith_vae *vae = model;
    if (vae->half == ITH_VAE_DECODER)
        name_decoder(w, vae);
    else
        name_encoder(w, vae);
}

/* The bytes of an ith_vae, whose last member is the array of all residual blocks. */
static int64_t struct_bytes(const ith_vae_config *config, ith_vae_half half)
{
    int64_t residuals = config->levels * ith_vae_level_blocks(config, half);
    return (int64_t)sizeof(ith_vae) + residuals * (int64_t)sizeof(ith_vae_residual);
}

ith_status ith_vae_create(ith_context *context, const ith_vae_config *config, ith_vae_half half,
                          ith_operand_types types, ith_vae **out)
{
    *out = NULL;
    if (half == ITH_VAE_ENCODER && config->encoder_fault)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "the encoder of this autoencoder is not supported: %s",
                        config->encoder_fault);
    *out = ith_alloc_zero(context, 1, struct_bytes(config, half), "the autoencoder");
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->config = *config, (*out)->half = half, (*out)->types = types;
    return ith_weights_outline(context, ITH_LINEAR_KEEP_NONE, name_weights, *out, &(*out)->memory);
}

int64_t ith_vae_bytes(const ith_vae *vae)
{
    return struct_bytes(&vae->config, vae->half) + ITH_ALLOC_HEADER + vae->memory.bytes;
}

ith_status ith_vae_check(ith_context *context, const ith_vae_config *config, ith_vae_half half, ith_store *store)
{
    ith_vae *vae = NULL;
    ith_status status = ith_vae_create(context, config, half, ith_operands_f32(), &vae);
    if (!status)
        status = ith_weights_check(context, store, NULL, name_weights, vae);
    ith_vae_free(context, &vae);
    return status;
}

ith_status ith_vae_open(ith_context *context, const ith_vae_config *config, ith_vae_half half, ith_store *store,
                        ith_operand_types types, ith_vae **out)
{
    ith_status status = ith_vae_create(context, config, half, types, out);
    if (*out)
        (*out)->memory.store = store;
    else
        ith_store_close(&store);
    if (!status)
        status = ith_weights_take(context, ITH_LINEAR_KEEP_NONE, false, name_weights, *out, &(*out)->memory);
    if (status)
        ith_vae_free(context, out);
    return status;
}

ith_status ith_vae_make_random(ith_context *context, const ith_vae_config *config, ith_vae_half half,
                               ith_operand_types types, ith_dtype type, ith_vae **out)
{
    ith_status status = ith_vae_create(context, config, half, types, out);
    if (!status)
        status = ith_store_open_random(context, type, &(*out)->memory.store);
    if (!status)
        status = ith_weights_take(context, ITH_LINEAR_KEEP_NONE, false, name_weights, *out, &(*out)->memory);
    if (status)
        ith_vae_free(context, out);
    return status;
}

ith_status ith_vae_random_bytes(ith_context *context, const ith_vae_config *config, ith_vae_half half, ith_dtype type,
                                int64_t *bytes)
{
    ith_vae *vae = NULL;
    ith_status status = ith_vae_create(context, config, half, ith_operands_f32(), &vae);
    if (!status)
        status = ith_store_open_random(context, type, &vae->memory.store);
    if (!status)
        status = ith_weights_check(context, vae->memory.store, NULL, name_weights, vae);
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
