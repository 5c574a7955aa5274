/* The autoencoder's config.json: read, checked, and every other architecture refused by name. */
#include "../files/json.h"
#include "vae.h"

#include <math.h>
#include <string.h>

#define CLASS_NAME "AutoencoderKLWan"
#define MOST_LEVELS 8
#define MOST_LATENT_CHANNELS 64
#define MOST_BASE_DIM 4096
#define MOST_MULTIPLE 64
#define MOST_RES_BLOCKS 64

static ith_status check_kind(ith_context *context, const ith_json *json)
{
    const char *name = NULL, *path = ith_json_path(json);
    bool residual = false;
    double scales[1];
    int64_t channels = 3, scale_count = 0;
    ith_status status = ith_json_string(context, json, "_class_name", true, &name);
    if (!status && strcmp(name, CLASS_NAME) != 0)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: the autoencoder is a %.80s; only " CLASS_NAME " is supported", path, name);
    if (!status)
        status = ith_json_bool(context, json, "is_residual", false, &residual);
    if (!status && (residual || ith_json_has(json, "patch_size")))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: %s is set: the Wan 2.2 autoencoder, which is not supported; that of Wan 2.1 is", path,
                        residual ? "is_residual" : "patch_size");
    if (!status)
        status = ith_json_int(context, json, "out_channels", 1, 65536, 3, &channels);
    if (!status && channels != 3)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: out_channels is %lld; only 3 is supported", path,
                        (long long)channels);
    if (!status)
        status = ith_json_doubles(context, json, "attn_scales", 1, scales, &scale_count);
    if (!status && scale_count)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: attn_scales is not empty; only [] is supported", path);
    return status;
}

static ith_status read_levels(ith_context *context, const ith_json *json, ith_vae_config *out)
{
    const char *path = ith_json_path(json);
    int64_t count = 0;
    bool down[MOST_LEVELS];
    ith_status status =
        ith_json_ints(context, json, "dim_mult", 1, MOST_MULTIPLE, MOST_LEVELS, out->dim_mult, &out->levels);
    if (!status && !out->levels)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"dim_mult\" is missing or empty", path);
    if (!status)
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
    /* The channels are halved where the picture is doubled. */
    for (int64_t i = 1; i < out->levels; i++)
        if (out->decoder_base_dim * out->dim_mult[i] % 2)
            return ith_fail(context, ITH_ERR_FORMAT, "%s: a level of %lld x %lld channels; the number must be even",
                            path, (long long)out->decoder_base_dim, (long long)out->dim_mult[i]);
    return ITH_OK;
}

static ith_status check_scale(ith_context *context, const ith_json *json, const char *key, int64_t expected)
{
    int64_t given = expected;
    ith_status status = ith_json_int(context, json, key, 1, 65536, expected, &given);
    if (!status && given != expected)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: key \"%s\" is %lld; its levels make %lld", ith_json_path(json),
                        key, (long long)given, (long long)expected);
    return status;
}

static ith_status read_statistics(ith_context *context, const ith_json *json, const char *key, int64_t channels,
                                  float *out)
{
    double values[MOST_LATENT_CHANNELS];
    int64_t count = 0;
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
        status = ith_json_int(context, json, "base_dim", 1, MOST_BASE_DIM, 0, &base);
    if (!status)
        status = ith_json_int(context, json, "decoder_base_dim", 1, MOST_BASE_DIM, base, &out->decoder_base_dim);
    if (!status)
        status = ith_json_int(context, json, "z_dim", 1, MOST_LATENT_CHANNELS, 0, &out->z_dim);
    if (!status)
        status = ith_json_int(context, json, "num_res_blocks", 1, MOST_RES_BLOCKS, 0, &out->res_blocks);
    if (!status)
        status = read_levels(context, json, out);
    if (!status)
        status = check_scale(context, json, "scale_factor_spatial", out->stride_space);
    if (!status)
        status = check_scale(context, json, "scale_factor_temporal", out->stride_time);
    if (!status)
        status = read_statistics(context, json, "latents_mean", out->z_dim, out->mean);
    if (!status)
        status = read_statistics(context, json, "latents_std", out->z_dim, out->std);
    return status;
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
