/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the autoencoder's config.json. If a field asks for another architecture, the error message names
 * it. */
#include "../../files/json.h"
#include "../config_fields.h"
#include "vae.h"

#include <math.h>
#include <string.h>

#define CLASS_NAME "AutoencoderKLWan"
#define MOST_LEVELS 8
#define MOST_LATENT_CHANNELS 64
#define MOST_BASE_DIM 4096
#define MOST_MULTIPLE 64
#define MOST_RES_BLOCKS 64

/* The values of the published Wan 2.1 autoencoder, which are the defaults of diffusers. */
#define USUAL_CHANNELS 16
static const float usual_mean[USUAL_CHANNELS] = {-0.7571f, -0.7089f, -0.9113f, 0.1075f,  -0.1745f, 0.9653f,
                                                 -0.1517f, 1.5508f,  0.4134f,  -0.0715f, 0.5517f,  -0.3632f,
                                                 -0.1922f, -0.9497f, 0.2503f,  -0.2921f};
static const float usual_std[USUAL_CHANNELS] = {2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f, 2.6052f, 2.0743f,
                                                3.2687f, 2.1526f, 2.8652f, 1.5579f, 1.6382f, 1.1253f, 2.8251f, 1.9160f};

static const char wan_22[] = "it is the Wan 2.2 autoencoder otherwise, which is not built; only Wan 2.1's is";

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
    {"attn_scales", NULL, NULL}, /* this field and the next affect the encoder only */
    {"in_channels", NULL, NULL},
    {"dropout", NULL, NULL}, /* used in training only */
    {"out_channels", "absent|3", NULL},
    {"is_residual", "absent|null|false", wan_22},
    {"patch_size", "absent|null", wan_22},
};

static ith_status check_kind(ith_context *context, const ith_json *json)
{
    const char *name = NULL;
    ith_status status = ith_json_string(context, json, "_class_name", true, &name);
    if (!status && strcmp(name, CLASS_NAME) != 0)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: the autoencoder is a %.80s; only " CLASS_NAME " is supported", ith_json_path(json), name);
    return status ? status : ith_config_fields_check_all(context, json, fields, sizeof fields / sizeof fields[0]);
}

/* Whether the file lacks a field, which then has the default of diffusers. */
static bool is_absent(const ith_json *json, const char *key)
{
    return !strcmp(ith_json_print(json, key).text, "absent");
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
    out->stride_time = out->stride_space = 1;
    for (int64_t i = 0; i < count; i++) {
        out->temporal_up[i] = down[count - 1 - i];
        out->stride_space *= 2;
        out->stride_time *= down[i] ? 2 : 1;
    }
    /* Doubling the size of a picture halves its channels, so their number must be even. */
    for (int64_t i = 1; i < out->levels; i++)
        if (out->decoder_base_dim * out->dim_mult[i] % 2)
            return ith_fail(context, ITH_ERR_FORMAT, "%s: a level of %lld x %lld channels; the number must be even",
                            path, (long long)out->decoder_base_dim, (long long)out->dim_mult[i]);
    return ITH_OK;
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

/* Reads the mean or the standard deviation of each latent channel. */
static ith_status read_statistics(ith_context *context, const ith_json *json, const char *key, const float *usual,
                                  int64_t channels, float *out)
{
    double values[MOST_LATENT_CHANNELS];
    int64_t count = 0;
    if (is_absent(json, key) && channels == USUAL_CHANNELS) {
        memcpy(out, usual, USUAL_CHANNELS * sizeof *out);
        return ITH_OK;
    }
    ith_status status = ith_json_doubles(context, json, key, MOST_LATENT_CHANNELS, values, &count);
    if (!status && count != channels)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" has %lld values; z_dim is %lld", ith_json_path(json),
                        key, (long long)count, (long long)channels);
    for (int64_t i = 0; !status && i < count; i++) {
        out[i] = (float)values[i];
        if (!isfinite(out[i]))
            return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" holds %g, which f32 cannot", ith_json_path(json),
                            key, values[i]);
    }
    return status;
}

static ith_status read_config(ith_context *context, const ith_json *json, ith_vae_config *out)
{
    int64_t base = 0;
    ith_status status = check_kind(context, json);
    if (!status)
        status = ith_json_int(context, json, "base_dim", 1, MOST_BASE_DIM, 96, &base);
    if (!status)
        status = ith_json_int(context, json, "decoder_base_dim", 1, MOST_BASE_DIM, base, &out->decoder_base_dim);
    if (!status)
        status = ith_json_int(context, json, "z_dim", 1, MOST_LATENT_CHANNELS, USUAL_CHANNELS, &out->z_dim);
    if (!status)
        status = ith_json_int(context, json, "num_res_blocks", 1, MOST_RES_BLOCKS, 2, &out->res_blocks);
    if (!status)
        status = read_levels(context, json, out);
    if (!status)
        status = check_scale(context, json, "scale_factor_spatial", out->stride_space);
    if (!status)
        status = check_scale(context, json, "scale_factor_temporal", out->stride_time);
    if (!status)
        status = read_statistics(context, json, "latents_mean", usual_mean, out->z_dim, out->mean);
    if (!status)
        status = read_statistics(context, json, "latents_std", usual_std, out->z_dim, out->std);
    for (int64_t i = 0; i < out->z_dim && !status; i++)
        if (!(out->std[i] > 0))
            status = ith_fail(context, ITH_ERR_FORMAT, "%s: key \"latents_std\" holds %g; it must be above 0",
                              ith_json_path(json), (double)out->std[i]);
    return status;
}

void ith_vae_config_usual(int64_t base_dim, int64_t res_blocks, ith_vae_config *out)
{
    *out = (ith_vae_config){.z_dim = USUAL_CHANNELS,
                            .decoder_base_dim = base_dim,
                            .levels = 4,
                            .dim_mult = {1, 2, 4, 4},
                            .res_blocks = res_blocks,
                            .temporal_up = {true, true, false},
                            .stride_time = 4,
                            .stride_space = 8};
    memcpy(out->mean, usual_mean, sizeof usual_mean);
    memcpy(out->std, usual_std, sizeof usual_std);
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
