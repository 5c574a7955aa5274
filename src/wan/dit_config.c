/* The transformer's config.json: read, checked, and every other architecture refused by name. */
#include "../base/context.h"
#include "../files/json.h"
#include "dit.h"

#include <string.h>

#define CLASS_NAME "WanTransformer3DModel"
#define QK_NORM "rms_norm_across_heads"

/* What every size must be: products of two of them then fit easily, and a cut file is found before it is allocated. */
#define MOST_HEADS 4096
#define MOST_HEAD_DIM 4096
#define MOST_DIM (1 << 20)
#define MOST_LAYERS 4096
#define MOST_CHANNELS 65536

static ith_status check_kind(ith_context *context, const ith_json *json)
{
    const char *name = NULL, *norm = NULL;
    bool cross_norm = true;
    ith_status status = ith_json_string(context, json, "_class_name", true, &name);
    if (!status && strcmp(name, CLASS_NAME) != 0)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: the model is a %.80s; only " CLASS_NAME " is supported",
                        ith_json_path(json), name);
    if (!status)
        status = ith_json_string(context, json, "qk_norm", false, &norm);
    if (!status)
        status = ith_json_bool(context, json, "cross_attn_norm", true, &cross_norm);
    if (status)
        return status;
    if (norm && strcmp(norm, QK_NORM) != 0)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: qk_norm is \"%.80s\"; only " QK_NORM " is supported",
                        ith_json_path(json), norm);
    if (!cross_norm)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: cross_attn_norm is false; only true is supported",
                        ith_json_path(json));
    static const char *const image_keys[] = {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"};
    for (int i = 0; i < 3; i++)
        if (ith_json_has(json, image_keys[i]))
            return ith_fail(context, ITH_ERR_UNSUPPORTED,
                            "%s: %s is set: a Wan 2.1 image-to-video model with CLIP, which is not supported; "
                            "text-to-video models have null there",
                            ith_json_path(json), image_keys[i]);
    return ITH_OK;
}

static ith_status read_patch(ith_context *context, const ith_json *json, int64_t patch[3])
{
    int64_t count = 0;
    ith_status status = ith_json_ints(context, json, "patch_size", 1, 1024, 3, patch, &count);
    if (status)
        return status;
    if (count == 0)
        patch[0] = 1, patch[1] = patch[2] = 2;
    else if (count != 3 || patch[0] != 1 || patch[1] != 2 || patch[2] != 2)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: patch_size must be [1, 2, 2]", ith_json_path(json));
    return ITH_OK;
}

static ith_status read_sizes(ith_context *context, const ith_json *json, ith_dit_config *out)
{
    const struct {
        const char *key;
        int64_t most, otherwise;
        int64_t *value;
    } sizes[] = {
        {"num_attention_heads", MOST_HEADS, 0, &out->heads},
        {"attention_head_dim", MOST_HEAD_DIM, 0, &out->head_dim},
        {"ffn_dim", MOST_DIM, 0, &out->ffn_dim},
        {"num_layers", MOST_LAYERS, 0, &out->layers},
        {"text_dim", MOST_DIM, 0, &out->text_dim},
        {"freq_dim", MOST_DIM, 256, &out->freq_dim},
        {"in_channels", MOST_CHANNELS, 0, &out->in_channels},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ith_status status =
            ith_json_int(context, json, sizes[i].key, 1, sizes[i].most, sizes[i].otherwise, sizes[i].value);
        if (status)
            return status;
    }
    ith_status status =
        ith_json_int(context, json, "out_channels", 1, MOST_CHANNELS, out->in_channels, &out->out_channels);
    if (!status)
        status = ith_json_double(context, json, "eps", 1e-6, &out->eps);
    return status ? status : read_patch(context, json, out->patch);
}

static ith_status check_sizes(ith_context *context, const ith_json *json, ith_dit_config *out)
{
    const char *path = ith_json_path(json);
    out->dim = out->heads * out->head_dim;
    if (out->dim > MOST_DIM)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: %lld heads of %lld are %lld wide; at most %d is supported", path,
                        (long long)out->heads, (long long)out->head_dim, (long long)out->dim, MOST_DIM);
    if (out->head_dim % 2 != 0)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: attention_head_dim must be even, not %lld", path,
                        (long long)out->head_dim);
    if (out->freq_dim % 2 != 0)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: freq_dim must be even, not %lld", path, (long long)out->freq_dim);
    if (!(out->eps > 0) || !(out->eps < 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: eps must be between 0 and 1, not %g", path, out->eps);
    return ITH_OK;
}

ith_status ith_dit_config_read(ith_context *context, const char *folder, ith_dit_config *out)
{
    *out = (ith_dit_config){0};
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "config.json", &json);
    if (!status)
        status = check_kind(context, json);
    if (!status)
        status = read_sizes(context, json, out);
    if (!status)
        status = check_sizes(context, json, out);
    ith_json_close(&json);
    return status;
}
