/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the transformer's config.json. If a field asks for another architecture, the error message names
 * it. */
#include "../../base/context.h"
#include "../../base/count.h"
#include "../../files/json.h"
#include "../part/config_fields.h"
#include "dit.h"

#include <string.h>

#define CLASS_NAME "WanTransformer3DModel"

/* Limits of sizes: the product of two sizes fits into an int64_t, and nonsense is refused before memory is allocated
 * for it. */
#define MOST_HEADS 4096
#define MOST_HEAD_DIM 4096
#define MOST_DIM (1 << 20)
#define MOST_CHANNELS 65536
#define MOST_POSITIONS (1 << 20)

static const ith_config_field fields[] = {
    {"patch_size", ITH_CONFIG_NOT_NULL, NULL},
    {"num_attention_heads", ITH_CONFIG_NOT_NULL, NULL},
    {"attention_head_dim", ITH_CONFIG_NOT_NULL, NULL},
    {"in_channels", ITH_CONFIG_NOT_NULL, NULL},
    {"out_channels", NULL, NULL},
    {"text_dim", ITH_CONFIG_NOT_NULL, NULL},
    {"freq_dim", ITH_CONFIG_NOT_NULL, NULL},
    {"ffn_dim", ITH_CONFIG_NOT_NULL, NULL},
    {"num_layers", ITH_CONFIG_NOT_NULL, NULL},
    {"eps", ITH_CONFIG_NOT_NULL, NULL},
    {"rope_max_seq_len", ITH_CONFIG_NOT_NULL, NULL},
    {"pos_embed_seq_len", NULL, NULL}, /* diffusers uses it only with image_dim */
    {"cross_attn_norm", "absent|true|false", NULL},
    {"qk_norm", "absent|\"rms_norm_across_heads\"", NULL},
    {"image_dim", NULL, NULL},
    {"added_kv_proj_dim", NULL, NULL},
};

static ith_status read_patch(ith_context *context, const ith_json *json, int64_t patch[3])
{
    int64_t count = 0;
    ith_status status = ith_json_ints(context, json, "patch_size", 1, 1024, 3, patch, &count);
    if (status)
        return status;
    if (!ith_json_has(json, "patch_size"))
        patch[0] = 1, patch[1] = patch[2] = 2;
    else if (count != 3 || patch[0] != 1 || patch[1] != 2 || patch[2] != 2)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: patch_size must be [1, 2, 2]", ith_json_path(json));
    return ITH_OK;
}

static ith_status read_sizes(ith_context *context, const ith_json *json, ith_dit_config *out)
{
    const struct {
        const char *key;
        int64_t most, otherwise; /* otherwise: diffusers' default for an absent field */
        int64_t *value;
    } sizes[] = {
        {"num_attention_heads", MOST_HEADS, 40, &out->heads},
        {"attention_head_dim", MOST_HEAD_DIM, 128, &out->head_dim},
        {"ffn_dim", MOST_DIM, 13824, &out->ffn_dim},
        {"num_layers", ITH_DIT_MOST_LAYERS, 40, &out->layers},
        {"text_dim", MOST_DIM, 4096, &out->text_dim},
        {"freq_dim", MOST_DIM, 256, &out->freq_dim},
        {"in_channels", MOST_CHANNELS, 16, &out->in_channels},
        {"rope_max_seq_len", MOST_POSITIONS, 1024, &out->positions},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ith_status status =
            ith_json_int(context, json, sizes[i].key, 1, sizes[i].most, sizes[i].otherwise, sizes[i].value);
        if (status)
            return status;
    }
    /* In diffusers, an out_channels of null means in_channels; an absent out_channels means 16. */
    int64_t otherwise = strcmp(ith_json_print(json, "out_channels").text, "absent") ? out->in_channels : 16;
    bool cross_norm = true;
    ith_status status = ith_json_int(context, json, "out_channels", 1, MOST_CHANNELS, otherwise, &out->out_channels);
    if (!status)
        status = ith_json_double(context, json, "eps", 1e-6, &out->eps);
    if (!status)
        status = ith_json_bool(context, json, "cross_attn_norm", true, &cross_norm);
    out->raw_cross = !cross_norm;
    out->dim = out->heads * out->head_dim;
    return status ? status : read_patch(context, json, out->patch);
}

/* Reads a size that is null or absent in models without it: *out becomes 0. */
static ith_status read_optional(ith_context *context, const ith_json *json, const char *key, int64_t most, int64_t *out)
{
    *out = 0;
    return ith_json_has(json, key) ? ith_json_int(context, json, key, 1, most, 1, out) : ITH_OK;
}

/* Reads the sizes for rows of an image encoder. */
static ith_status read_image_sizes(ith_context *context, const ith_json *json, ith_dit_config *out)
{
    int64_t added = 0;
    ith_status status = read_optional(context, json, "image_dim", MOST_DIM, &out->image_dim);
    if (!status)
        status = read_optional(context, json, "added_kv_proj_dim", MOST_DIM, &added);
    if (!status && out->image_dim)
        status = read_optional(context, json, "pos_embed_seq_len", ITH_DIT_MOST_IMAGE_ROWS, &out->image_rows);
    if (status || added == (out->image_dim ? out->dim : 0))
        return status;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: image_dim is %s and added_kv_proj_dim is %s: models from images with CLIP have both, and "
                    "added_kv_proj_dim is their width, %lld; all others have none",
                    ith_json_path(json), ith_json_print(json, "image_dim").text,
                    ith_json_print(json, "added_kv_proj_dim").text, (long long)out->dim);
}

ith_status ith_dit_eps_check(ith_context *context, const char *where, double eps)
{
    if (!(eps > 0) || !(eps < 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: eps must be between 0 and 1, not %g", where, eps);
    return ITH_OK;
}

/* Checks the limits of sizes that were not read from the diffusers form of config.json, where they have names. */
static ith_status check_limits(ith_context *context, const char *where, const ith_dit_config *c)
{
    const ith_size_limit sizes[] = {{"heads", c->heads, MOST_HEADS},
                                    {"numbers of a head", c->head_dim, MOST_HEAD_DIM},
                                    {"features of the feed-forward network", c->ffn_dim, MOST_DIM},
                                    {"layers", c->layers, ITH_DIT_MOST_LAYERS},
                                    {"features of the text", c->text_dim, MOST_DIM},
                                    {"features of the time", c->freq_dim, MOST_DIM},
                                    {"channels that it reads", c->in_channels, MOST_CHANNELS},
                                    {"channels that it makes", c->out_channels, MOST_CHANNELS}};
    return ith_size_limits_check(context, where, "a transformer", sizes, ITH_COUNT(sizes));
}

ith_status ith_dit_config_check(ith_context *context, const char *where, const ith_dit_config *config)
{
    ith_status status = check_limits(context, where, config);
    if (status)
        return status;
    if (config->dim > MOST_DIM)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: %lld heads of %lld are %lld wide; at most %d is supported", where,
                        (long long)config->heads, (long long)config->head_dim, (long long)config->dim, MOST_DIM);
    if (config->image_dim > MOST_DIM || config->image_rows > ITH_DIT_MOST_IMAGE_ROWS)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: %lld rows of images of %lld numbers; at most %d of %d are supported", where,
                        (long long)config->image_rows, (long long)config->image_dim, ITH_DIT_MOST_IMAGE_ROWS, MOST_DIM);
    if (config->head_dim % 2 != 0)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: attention_head_dim must be even, not %lld", where,
                        (long long)config->head_dim);
    if (config->freq_dim % 2 != 0)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: freq_dim must be even, not %lld", where,
                        (long long)config->freq_dim);
    return ith_dit_eps_check(context, where, config->eps);
}

ith_status ith_dit_config_read(ith_context *context, const char *folder, ith_dit_config *out)
{
    static const ith_config_table table = {fields, sizeof fields / sizeof fields[0]};
    *out = (ith_dit_config){0};
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "config.json", &json);
    if (!status)
        status = ith_config_class_check(context, json, "the model", CLASS_NAME);
    if (!status)
        status = ith_config_fields_check_all(context, json, &table, 1);
    if (!status)
        status = read_sizes(context, json, out);
    if (!status)
        status = read_image_sizes(context, json, out);
    if (!status)
        status = ith_dit_config_check(context, ith_json_path(json), out);
    ith_json_close(&json);
    return status;
}
