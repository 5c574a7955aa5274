/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's weights: found in the file by name and shape, every one of them. */
#include "vae_weights.h"

#include <stdio.h>

typedef struct loader {
    ith_context *context;
    ith_store *store;
    int64_t weight_bytes; /* of the filters taken so far */
} loader;

typedef struct tensor_name {
    char text[192];
} tensor_name;

static tensor_name name_of(const char *module, const char *what)
{
    tensor_name name;
    snprintf(name.text, sizeof name.text, "%.150s.%.32s", module, what);
    return name;
}

/* dims: of the weight; 5 for convolutions over frames, 4 for those over pictures. */
static ith_status load_filter(loader *l, const char *module, int dims, const ith_vae_filter *shape, ith_vae_filter *out)
{
    const int64_t frames[5] = {shape->out, shape->in, shape->frames, shape->kernel, shape->kernel};
    const int64_t picture[4] = {shape->out, shape->in, shape->kernel, shape->kernel};
    *out = *shape;
    ith_status status = ith_store_take(l->context, l->store, name_of(module, "weight").text, dims,
                                       dims == 5 ? frames : picture, &out->weight);
    if (!status)
        status = ith_store_take_f32(l->context, l->store, name_of(module, "bias").text, 1, &shape->out, &out->bias);
    if (!status)
        l->weight_bytes += out->weight->bytes;
    return status;
}

static ith_status load_gamma(loader *l, const char *module, int dims, int64_t channels, float **out)
{
    const int64_t shape[4] = {channels, 1, 1, 1};
    return ith_store_take_f32(l->context, l->store, name_of(module, "gamma").text, dims, shape, out);
}

static ith_status load_residual(loader *l, const char *module, int64_t in, int64_t out_channels, ith_vae_residual *out)
{
    const ith_vae_filter first = {.in = in, .out = out_channels, .frames = ITH_VAE_HISTORY, .kernel = 3};
    const ith_vae_filter second = {.in = out_channels, .out = out_channels, .frames = ITH_VAE_HISTORY, .kernel = 3};
    const ith_vae_filter shortcut = {.in = in, .out = out_channels, .frames = 1, .kernel = 1};
    ith_status status = load_gamma(l, name_of(module, "norm1").text, 4, in, &out->norm1);
    if (!status)
        status = load_filter(l, name_of(module, "conv1").text, 5, &first, &out->conv1);
    if (!status)
        status = load_gamma(l, name_of(module, "norm2").text, 4, out_channels, &out->norm2);
    if (!status)
        status = load_filter(l, name_of(module, "conv2").text, 5, &second, &out->conv2);
    if (!status && in != out_channels)
        status = load_filter(l, name_of(module, "conv_shortcut").text, 5, &shortcut, &out->shortcut);
    return status;
}

static ith_status load_middle(loader *l, ith_vae *vae)
{
    int64_t channels = ith_vae_level_in(&vae->config, 0);
    const ith_vae_filter qkv = {.in = channels, .out = 3 * channels, .frames = 1, .kernel = 1};
    const ith_vae_filter proj = {.in = channels, .out = channels, .frames = 1, .kernel = 1};
    ith_status status = load_residual(l, "decoder.mid_block.resnets.0", channels, channels, &vae->before);
    if (!status)
        status = load_gamma(l, "decoder.mid_block.attentions.0.norm", 3, channels, &vae->attention_norm);
    if (!status)
        status = load_filter(l, "decoder.mid_block.attentions.0.to_qkv", 4, &qkv, &vae->qkv);
    if (!status)
        status = load_filter(l, "decoder.mid_block.attentions.0.proj", 4, &proj, &vae->proj);
    if (!status)
        status = load_residual(l, "decoder.mid_block.resnets.1", channels, channels, &vae->after);
    return status;
}

static ith_status load_level(loader *l, ith_vae *vae, int64_t index)
{
    const ith_vae_config *config = &vae->config;
    ith_vae_level *level = &vae->levels[index];
    char module[96];
    level->in = ith_vae_level_in(config, index), level->out = ith_vae_level_out(config, index);
    level->residual_count = config->res_blocks + 1;
    level->residuals = ith_alloc_zero(l->context, level->residual_count, sizeof *level->residuals, "a decoder level");
    if (!level->residuals)
        return ITH_ERR_MEMORY;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < level->residual_count && !status; i++) {
        snprintf(module, sizeof module, "decoder.up_blocks.%d.resnets.%d", (int)index, (int)i);
        status = load_residual(l, module, i ? level->out : level->in, level->out, &level->residuals[i]);
    }
    if (status || index == config->levels - 1)
        return status;
    const ith_vae_filter resample = {.in = level->out, .out = level->out / 2, .frames = 1, .kernel = 3};
    const ith_vae_filter time = {.in = level->out, .out = 2 * level->out, .frames = ITH_VAE_HISTORY, .kernel = 1};
    snprintf(module, sizeof module, "decoder.up_blocks.%d.upsamplers.0.resample.1", (int)index);
    status = load_filter(l, module, 4, &resample, &level->resample);
    snprintf(module, sizeof module, "decoder.up_blocks.%d.upsamplers.0.time_conv", (int)index);
    if (!status && config->temporal_up[index])
        status = load_filter(l, module, 5, &time, &level->time);
    return status;
}

static ith_status load_weights(loader *l, ith_vae *vae)
{
    const ith_vae_config *config = &vae->config;
    int64_t last = ith_vae_level_out(config, config->levels - 1);
    const ith_vae_filter post = {.in = config->z_dim, .out = config->z_dim, .frames = 1, .kernel = 1};
    const ith_vae_filter in = {
        .in = config->z_dim, .out = ith_vae_level_in(config, 0), .frames = ITH_VAE_HISTORY, .kernel = 3};
    const ith_vae_filter out = {.in = last, .out = 3, .frames = ITH_VAE_HISTORY, .kernel = 3};
    ith_status status = load_filter(l, "post_quant_conv", 5, &post, &vae->post_quant);
    if (!status)
        status = load_filter(l, "decoder.conv_in", 5, &in, &vae->in);
    if (!status)
        status = load_middle(l, vae);
    for (int64_t i = 0; i < config->levels && !status; i++)
        status = load_level(l, vae, i);
    if (!status)
        status = load_gamma(l, "decoder.norm_out", 4, last, &vae->norm_out);
    if (!status)
        status = load_filter(l, "decoder.conv_out", 5, &out, &vae->out);
    if (status)
        return status;
    ith_store_skip(l->store, "encoder.");
    ith_store_skip(l->store, "quant_conv.");
    return ith_store_check_all_taken(l->context, l->store);
}

ith_status ith_vae_load(ith_context *context, const char *folder, ith_operand_types types, ith_vae **out)
{
    *out = NULL;
    ith_vae *vae = ith_alloc_zero(context, 1, sizeof *vae, "the autoencoder");
    if (!vae)
        return ITH_ERR_MEMORY;
    vae->types = types;
    ith_status status = ith_vae_config_read(context, folder, &vae->config);
    if (!status)
        status = ith_store_open(context, folder, "diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, &vae->store);
    loader l = {.context = context, .store = vae->store};
    if (!status)
        status = load_weights(&l, vae);
    vae->weight_bytes = l.weight_bytes;
    *out = vae;
    if (status)
        ith_vae_free(context, out);
    return status;
}

static void free_residual(ith_context *context, ith_vae_residual *residual)
{
    ith_free(context, residual->conv1.bias);
    ith_free(context, residual->conv2.bias);
    ith_free(context, residual->shortcut.bias);
    ith_free(context, residual->norm1);
    ith_free(context, residual->norm2);
}

static void free_level(ith_context *context, ith_vae_level *level)
{
    for (int64_t i = 0; level->residuals && i < level->residual_count; i++)
        free_residual(context, &level->residuals[i]);
    ith_free(context, level->residuals);
    ith_free(context, level->resample.bias);
    ith_free(context, level->time.bias);
}

void ith_vae_free(ith_context *context, ith_vae **vae)
{
    if (!vae || !*vae)
        return;
    ith_vae *v = *vae;
    for (int i = 0; i < ITH_VAE_MOST_LEVELS; i++)
        free_level(context, &v->levels[i]);
    free_residual(context, &v->before);
    free_residual(context, &v->after);
    float *arrays[] = {v->post_quant.bias, v->in.bias,        v->out.bias, v->qkv.bias,
                       v->proj.bias,       v->attention_norm, v->norm_out};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        ith_free(context, arrays[i]);
    ith_store_close(&v->store);
    ith_free(context, v);
    *vae = NULL;
}

const ith_vae_config *ith_vae_config_of(const ith_vae *vae)
{
    return &vae->config;
}
