/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the autoencoder's config.json. If a field asks for another architecture, the error message names
 * it. */
#include "../../base/count.h"
#include "../../files/json.h"
#include "../part/config_fields.h"
#include "vae_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLASS_NAME "AutoencoderKLWan"
#define MOST_LEVELS 8
#define MOST_BASE_DIM 4096
#define MOST_MULTIPLE 64
#define MOST_RES_BLOCKS 64
#define MOST_PATCH 16

/* The values of the published Wan 2.1 autoencoder, which are the defaults of diffusers. */
#define USUAL_CHANNELS 16
static const float usual_mean[USUAL_CHANNELS] = {-0.7571f, -0.7089f, -0.9113f, 0.1075f,  -0.1745f, 0.9653f,
                                                 -0.1517f, 1.5508f,  0.4134f,  -0.0715f, 0.5517f,  -0.3632f,
                                                 -0.1922f, -0.9497f, 0.2503f,  -0.2921f};
static const float usual_std[USUAL_CHANNELS] = {2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f, 2.6052f, 2.0743f,
                                                3.2687f, 2.1526f, 2.8652f, 1.5579f, 1.6382f, 1.1253f, 2.8251f, 1.9160f};

/* The values of the published Wan 2.2 autoencoder. */
#define WAN_22_CHANNELS 48
static const float wan_22_mean[WAN_22_CHANNELS] = {
    -0.2289f, -0.0052f, -0.1323f, -0.2339f, -0.2799f, 0.0174f,  0.1838f,  0.1557f,  -0.1382f, 0.0542f,
    0.2813f,  0.0891f,  0.1570f,  -0.0098f, 0.0375f,  -0.1825f, -0.2246f, -0.1207f, -0.0698f, 0.5109f,
    0.2665f,  -0.2108f, -0.2158f, 0.2502f,  -0.2055f, -0.0322f, 0.1109f,  0.1567f,  -0.0729f, 0.0899f,
    -0.2799f, -0.1230f, -0.0313f, -0.1649f, 0.0117f,  0.0723f,  -0.2839f, -0.2083f, -0.0520f, 0.3748f,
    0.0152f,  0.1957f,  0.1433f,  -0.2944f, 0.3573f,  -0.0548f, -0.1681f, -0.0667f};
static const float wan_22_std[WAN_22_CHANNELS] = {
    0.4765f, 1.0364f, 0.4514f, 1.1677f, 0.5313f, 0.4990f, 0.4818f, 0.5013f, 0.8158f, 1.0344f, 0.5894f, 1.0901f,
    0.6885f, 0.6165f, 0.8454f, 0.4978f, 0.5759f, 0.3523f, 0.7135f, 0.6804f, 0.5833f, 1.4146f, 0.8986f, 0.5659f,
    0.7069f, 0.5338f, 0.4889f, 0.4917f, 0.4069f, 0.4999f, 0.6866f, 0.4093f, 0.5709f, 0.6065f, 0.6415f, 0.4944f,
    0.5726f, 1.2042f, 0.5458f, 1.6887f, 0.3971f, 1.0600f, 0.3943f, 0.5537f, 0.5444f, 0.4089f, 0.7468f, 0.7744f};

static const ith_config_field fields[] = {
    {"base_dim", ITH_CONFIG_NOT_NULL, NULL},
    {"decoder_base_dim", NULL, NULL},
    {"z_dim", ITH_CONFIG_NOT_NULL, NULL},
    {"dim_mult", ITH_CONFIG_NOT_NULL, NULL},
    {"num_res_blocks", ITH_CONFIG_NOT_NULL, NULL},
    {"temperal_downsample", ITH_CONFIG_NOT_NULL, NULL},
    {"latents_mean", ITH_CONFIG_NOT_NULL, NULL},
    {"latents_std", ITH_CONFIG_NOT_NULL, NULL},
    {"scale_factor_temporal", ITH_CONFIG_NOT_NULL, NULL},
    {"scale_factor_spatial", ITH_CONFIG_NOT_NULL, NULL},
    {"attn_scales", NULL, NULL}, /* this field and the next affect the encoder only (check_encoder) */
    {"in_channels", NULL, NULL},
    {"dropout", NULL, NULL}, /* used in training only */
    {"out_channels", ITH_CONFIG_NOT_NULL, NULL},
    {"is_residual", NULL, NULL},
    {"patch_size", NULL, NULL},
};

/* Whether the file lacks a field, which then has the default of diffusers. */
static bool is_absent(const ith_json *json, const char *key)
{
    return !strcmp(ith_json_print(json, key).text, "absent");
}

ith_status ith_vae_config_check_levels(ith_context *context, const char *where, const ith_vae_config *config)
{
    for (int64_t i = 0; i + 1 < config->levels; i++) {
        const int64_t in = ith_vae_level_in(config, ITH_VAE_DECODER, i);
        const int64_t out = ith_vae_level_out(config, ITH_VAE_DECODER, i);
        const int64_t copies = ith_vae_copies(config->temporal_up[i]);
        if (!config->residual && out % 2)
            return ith_fail(context, ITH_ERR_FORMAT, "%s: a level of %lld channels; the number must be even", where,
                            (long long)out);
        if (config->residual && out * copies % in)
            return ith_fail(context, ITH_ERR_FORMAT,
                            "%s: a level from %lld to %lld channels; %lld times the latter must be a multiple of the "
                            "former",
                            where, (long long)in, (long long)out, (long long)copies);
    }
    return ITH_OK;
}

ith_status ith_vae_config_check_sizes(ith_context *context, const char *where, const ith_vae_config *config)
{
    const ith_size_limit sizes[] = {{"channels in its decoder's first width", config->decoder_base_dim, MOST_BASE_DIM},
                                    {"channels in its encoder's first width", config->encoder_base_dim, MOST_BASE_DIM},
                                    {"residual blocks of a level", config->res_blocks, MOST_RES_BLOCKS}};
    ith_status status = ith_size_limits_check(context, where, "an autoencoder", sizes, ITH_COUNT(sizes));
    return status ? status : ith_vae_config_check_levels(context, where, config);
}

/* Reads dim_mult and temperal_downsample (the field's own spelling). Both list the levels (picture sizes) in the order
 * of the encoder, which decoding reverses. */
static ith_status read_levels(ith_context *context, const ith_json *json, ith_vae_config *out)
{
    const char *path = ith_json_path(json);
    static const int64_t usual[] = {1, 2, 4, 4};
    int64_t count = 3;
    bool down[MOST_LEVELS] = {false, true, true};
    ith_status status = ITH_OK;
    if (is_absent(json, "dim_mult"))
        memcpy(out->dim_mult, usual, sizeof usual), out->levels = 4;
    else
        status = ith_json_ints(context, json, "dim_mult", 1, MOST_MULTIPLE, MOST_LEVELS, out->dim_mult, &out->levels);
    if (!status && !out->levels)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"dim_mult\" is empty", path);
    if (!status && !is_absent(json, "temperal_downsample"))
        status = ith_json_bools(context, json, "temperal_downsample", MOST_LEVELS, down, &count);
    if (status)
        return status;
    if (count != out->levels - 1)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: temperal_downsample has %lld values; dim_mult of %lld needs %lld",
                        path, (long long)count, (long long)out->levels, (long long)(out->levels - 1));
    out->stride_time = 1, out->stride_space = out->patch;
    for (int64_t i = 0; i < count; i++) {
        out->temporal_up[i] = down[count - 1 - i];
        out->stride_space *= 2;
        out->stride_time *= down[i] ? 2 : 1;
    }
    return ith_vae_config_check_levels(context, path, out);
}

/* Reads out_channels and patch_size: the last convolution makes three colours for each pixel of a square. */
static ith_status read_patch(ith_context *context, const ith_json *json, ith_vae_config *out)
{
    int64_t channels = 0;
    ith_status status = ith_json_int(context, json, "patch_size", 1, MOST_PATCH, 1, &out->patch);
    if (!status)
        status = ith_json_int(context, json, "out_channels", 1, INT32_MAX, 3, &channels);
    if (!status && channels != ith_vae_patch_numbers(out))
        return ith_fail(
            context, ITH_ERR_FORMAT, "%s: key \"out_channels\" is %lld; with a patch_size of %lld it must be %lld",
            ith_json_path(json), (long long)channels, (long long)out->patch, (long long)ith_vae_patch_numbers(out));
    return status;
}

/* Checks a field that gives the stride in time or space. The strides follow from dim_mult and temperal_downsample, and
 * a field that contradicts them is an error. */
static ith_status check_scale(ith_context *context, const ith_json *json, const char *key, int64_t expected)
{
    int64_t given = expected;
    ith_status status = ith_json_int(context, json, key, 1, 65536, expected, &given);
    if (!status && given != expected)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" is %lld; its levels make %lld", ith_json_path(json),
                        key, (long long)given, (long long)expected);
    return status;
}

/* Reads the mean or, if positive, the standard deviation of each latent channel. */
static ith_status read_statistics(ith_context *context, const ith_json *json, const char *key, bool positive,
                                  const float *usual, int64_t channels, float *out)
{
    double values[ITH_LATENT_MOST_CHANNELS];
    int64_t count = 0;
    if (is_absent(json, key) && channels == USUAL_CHANNELS) {
        memcpy(out, usual, USUAL_CHANNELS * sizeof *out);
        return ITH_OK;
    }
    ith_status status = ith_json_doubles(context, json, key, ITH_LATENT_MOST_CHANNELS, values, &count);
    if (!status && count != channels)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" has %lld values; z_dim is %lld", ith_json_path(json),
                        key, (long long)count, (long long)channels);
    for (int64_t i = 0; !status && i < count; i++) {
        out[i] = (float)values[i];
        if (positive && !(values[i] > 0))
            return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" holds %g; it must be above 0", ith_json_path(json),
                            key, values[i]);
        if (!isfinite(out[i]) || (positive && !(out[i] > 0)))
            return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" holds %g, which f32 cannot", ith_json_path(json),
                            key, values[i]);
    }
    return status;
}

/* Whether the shortcuts around the levels of the encoder average a whole number of numbers for each channel. */
static bool averages(const ith_vae_config *config)
{
    for (int64_t i = 0; config->residual && i < config->levels; i++)
        if (ith_vae_level_in(config, ITH_VAE_ENCODER, i) * ith_vae_level_merges(config, i) %
            ith_vae_level_out(config, ITH_VAE_ENCODER, i))
            return false;
    return true;
}

/* Sets the reason why the encoder cannot be used, although the decoder can. */
static void check_encoder(const ith_json *json, ith_vae_config *out)
{
    const ith_json_text scales = ith_json_print(json, "attn_scales"), channels = ith_json_print(json, "in_channels");
    const bool usual = is_absent(json, "in_channels");
    char *end = NULL;
    if ((usual ? 3 : strtoll(channels.text, &end, 10)) != ith_vae_patch_numbers(out) || (end && *end))
        out->encoder_fault = "in_channels of its config.json is not 3 for each pixel of a patch";
    else if (!is_absent(json, "attn_scales") && strcmp(scales.text, "[]") != 0)
        out->encoder_fault = "attn_scales of its config.json is not empty";
    else if (!averages(out))
        out->encoder_fault = "its numbers of channels do not divide as its shortcuts need";
}

static ith_status read_config(ith_context *context, const ith_json *json, ith_vae_config *out)
{
    static const ith_config_table table = {fields, sizeof fields / sizeof fields[0]};
    ith_status status = ith_config_class_check(context, json, "the autoencoder", CLASS_NAME);
    if (!status)
        status = ith_config_fields_check_all(context, json, &table, 1);
    if (!status)
        status = ith_json_int(context, json, "base_dim", 1, MOST_BASE_DIM, 96, &out->encoder_base_dim);
    if (!status)
        status = ith_json_int(context, json, "decoder_base_dim", 1, MOST_BASE_DIM, out->encoder_base_dim,
                              &out->decoder_base_dim);
    if (!status)
        status = ith_json_int(context, json, "z_dim", 1, ITH_LATENT_MOST_CHANNELS, USUAL_CHANNELS, &out->z_dim);
    if (!status)
        status = ith_json_int(context, json, "num_res_blocks", 1, MOST_RES_BLOCKS, 2, &out->res_blocks);
    if (!status)
        status = ith_json_bool(context, json, "is_residual", false, &out->residual);
    if (!status)
        status = read_patch(context, json, out);
    if (!status)
        status = read_levels(context, json, out);
    if (!status)
        check_encoder(json, out);
    if (!status)
        status = check_scale(context, json, "scale_factor_spatial", out->stride_space);
    if (!status)
        status = check_scale(context, json, "scale_factor_temporal", out->stride_time);
    if (!status)
        status = read_statistics(context, json, "latents_mean", false, usual_mean, out->z_dim, out->mean);
    if (!status)
        status = read_statistics(context, json, "latents_std", true, usual_std, out->z_dim, out->std);
    return status;
}

void ith_vae_config_published(bool wan_22, ith_vae_config *out)
{
    *out = (ith_vae_config){.z_dim = wan_22 ? WAN_22_CHANNELS : USUAL_CHANNELS,
                            .decoder_base_dim = wan_22 ? 256 : 96,
                            .encoder_base_dim = wan_22 ? 160 : 96,
                            .levels = 4,
                            .dim_mult = {1, 2, 4, 4},
                            .res_blocks = 2,
                            .temporal_up = {true, true, false},
                            .residual = wan_22,
                            .patch = wan_22 ? 2 : 1,
                            .stride_time = 4,
                            .stride_space = wan_22 ? 16 : 8};
    memcpy(out->mean, wan_22 ? wan_22_mean : usual_mean, (size_t)out->z_dim * sizeof *out->mean);
    memcpy(out->std, wan_22 ? wan_22_std : usual_std, (size_t)out->z_dim * sizeof *out->std);
}

ith_status ith_vae_config_read(ith_context *context, const char *folder, ith_vae_config *out)
{
    *out = (ith_vae_config){0};
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "config.json", &json);
    if (!status)
        status = read_config(context, json, out);
    ith_json_close(&json);
    return status;
}
