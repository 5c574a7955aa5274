/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks config.json of CLIP's image encoder. */
#include "vision_config.h"

#include "../../base/count.h"
#include "../../files/json.h"
#include "../../kernels/kernel.h"
#include "../part/config_fields.h"

#include <math.h>
#include <string.h>

#define MOST_DIM (1 << 20)
#define MOST_SIDE (1 << 14)
#define MOST_PATCH 512
#define MOST_LAYERS 4096
#define MOST_TOKENS (1 << 20)

/* The mean and the standard deviation of the colours of CLIP's training pictures. */
static const double usual_mean[3] = {0.48145466, 0.4578275, 0.40821073};
static const double usual_std[3] = {0.26862954, 0.26130258, 0.27577711};

/* The fields of CLIPVisionConfig. */
static const ith_config_field fields[] = {
    {"model_type", "absent|null|\"clip_vision_model\"", "the image encoder must be the vision model of CLIP"},
    {"hidden_act", "absent|\"quick_gelu\"|\"gelu\"", NULL},
    {"num_channels", "absent|3", "a picture has three colours"},
    {"hidden_size", ITH_CONFIG_NOT_NULL, NULL},
    {"intermediate_size", ITH_CONFIG_NOT_NULL, NULL},
    {"num_hidden_layers", ITH_CONFIG_NOT_NULL, NULL},
    {"num_attention_heads", ITH_CONFIG_NOT_NULL, NULL},
    {"image_size", ITH_CONFIG_NOT_NULL, NULL},
    {"patch_size", ITH_CONFIG_NOT_NULL, NULL},
    {"layer_norm_eps", ITH_CONFIG_NOT_NULL, NULL},
    {"projection_dim", NULL, NULL},    /* of the projection after the last layer */
    {"attention_dropout", NULL, NULL}, /* this field and the next two are used in training only */
    {"initializer_range", NULL, NULL},
    {"initializer_factor", NULL, NULL},
};

void ith_vision_config_usual(ith_vision_config *config)
{
    config->resize = config->image;
    memcpy(config->mean, usual_mean, sizeof usual_mean);
    memcpy(config->std, usual_std, sizeof usual_std);
}

/* Reads the sizes. An absent field has transformers' default. */
static ith_status read_sizes(ith_context *context, const ith_json *json, ith_vision_config *out)
{
    const struct {
        const char *key;
        int64_t most, otherwise;
        int64_t *value;
    } sizes[] = {
        {"image_size", MOST_SIDE, 224, &out->image},
        {"patch_size", MOST_PATCH, 32, &out->patch},
        {"hidden_size", MOST_DIM, 768, &out->dim},
        {"num_attention_heads", MOST_DIM, 12, &out->heads},
        {"intermediate_size", MOST_DIM, 3072, &out->ffn_dim},
        {"num_hidden_layers", MOST_LAYERS, 12, &out->layers},
    };
    ith_status status = ITH_OK;
    for (int i = 0; i < ITH_COUNT(sizes) && !status; i++)
        status = ith_json_int(context, json, sizes[i].key, 1, sizes[i].most, sizes[i].otherwise, sizes[i].value);
    if (!status)
        status = ith_json_double(context, json, "layer_norm_eps", 1e-5, &out->eps);
    if (!strcmp(ith_json_print(json, "hidden_act").text, "\"gelu\""))
        out->act = ITH_VISION_GELU;
    else
        out->act = ITH_VISION_GELU_QUICK;
    return status;
}

/* Checks the limits of the sizes. read_sizes has checked sizes of a config.json, by the names that they have there. */
static ith_status check_limits(ith_context *context, const char *where, const ith_vision_config *c)
{
    const ith_size_limit sizes[] = {{"pixels of a picture's side", c->image, MOST_SIDE},
                                    {"pixels of a patch's side", c->patch, MOST_PATCH},
                                    {"features", c->dim, MOST_DIM},
                                    {"heads", c->heads, MOST_DIM},
                                    {"features of the feed-forward network", c->ffn_dim, MOST_DIM},
                                    {"layers", c->layers, MOST_LAYERS}};
    return ith_size_limits_check(context, where, "an image encoder", sizes, ITH_COUNT(sizes));
}

/* Checks the preparation of a picture. */
static ith_status check_picture(ith_context *context, const char *where, const ith_vision_config *c)
{
    if (c->resize < c->image || c->resize > MOST_SIDE)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: pictures are scaled to a shorter side of %lld pixels; it must be from %lld, the size of "
                        "the image encoder, to %d",
                        where, (long long)c->resize, (long long)c->image, MOST_SIDE);
    for (int i = 0; i < 3; i++)
        if (!isfinite((float)c->mean[i]) || !isfinite((float)c->std[i]) || !((float)c->std[i] > 0))
            return ith_fail(context, ITH_ERR_FORMAT,
                            "%s: colour %d has the mean %g and the standard deviation %g; both must be finite, and the "
                            "latter above 0",
                            where, i, c->mean[i], c->std[i]);
    return ITH_OK;
}

ith_status ith_vision_config_check(ith_context *context, const char *where, const ith_vision_config *c)
{
    ith_status status = check_limits(context, where, c);
    if (status)
        return status;
    if (c->image % c->patch)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: a picture of %lld pixels cannot be divided into patches of %lld",
                        where, (long long)c->image, (long long)c->patch);
    if (ith_vision_tokens(c) > MOST_TOKENS)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: a picture of %lld x %lld pixels has %lld patches of %lld; %d are "
                        "the most",
                        where, (long long)c->image, (long long)c->image, (long long)ith_vision_tokens(c) - 1,
                        (long long)c->patch, MOST_TOKENS - 1);
    if (c->dim % c->heads || c->dim / c->heads > ITH_ATTN_HEAD_DIM_MAX)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: %lld features cannot be divided into %lld heads of at most %d features", where,
                        (long long)c->dim, (long long)c->heads, ITH_ATTN_HEAD_DIM_MAX);
    if (c->layers < 2)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: the image encoder has one layer; it needs two, because the last one is not computed",
                        where);
    if (!(c->eps >= 0 && c->eps < 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: layer_norm_eps is %g; it must be of [0, 1)", where, c->eps);
    return check_picture(context, where, c);
}

ith_status ith_vision_config_read(ith_context *context, const char *folder, ith_vision_config *out)
{
    *out = (ith_vision_config){0};
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "config.json", &json);
    if (!status)
        status = ith_config_fields_check(context, json, fields, ITH_COUNT(fields));
    if (!status)
        status = read_sizes(context, json, out);
    if (!status) {
        ith_vision_config_usual(out);
        status = ith_vision_config_check(context, ith_json_path(json), out);
    }
    ith_json_close(&json);
    return status;
}
