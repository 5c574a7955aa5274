/* config.json of a umT5 encoder. */
#include "text_encoder.h"

#include "../files/json.h"
#include "../files/quote.h"
#include "../kernels/kernel.h"

#include <string.h>

#define MOST_DIM (1 << 20)
#define MOST_VOCAB (1 << 24)
#define MOST_LAYERS 4096

/* A key that is absent means a umT5 encoder as well. */
static ith_status require(ith_context *context, const ith_json *json, const char *key, const char *wanted)
{
    const char *value = NULL;
    ith_status status = ith_json_string(context, json, key, false, &value);
    if (!status && value && strcmp(value, wanted) != 0)
        status = ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: '%s' is '%s'; only a umT5 encoder ('%s') is taken",
                          ith_json_path(json), key, ith_quote(value).text, wanted);
    return status;
}

static ith_status check_kind(ith_context *context, const ith_json *json)
{
    bool decoder = false;
    ith_status status = require(context, json, "model_type", "umt5");
    if (!status)
        status = require(context, json, "feed_forward_proj", "gated-gelu");
    if (!status)
        status = ith_json_bool(context, json, "is_decoder", false, &decoder);
    if (!status && decoder)
        status = ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: 'is_decoder' is true; only a umT5 encoder is taken",
                          ith_json_path(json));
    return status;
}

static ith_status read_sizes(ith_context *context, const ith_json *json, ith_text_config *out)
{
    const struct {
        const char *key;
        int64_t least, most, otherwise; /* otherwise 0: required */
        int64_t *value;
    } sizes[] = {
        {"vocab_size", 1, MOST_VOCAB, 0, &out->vocab},
        {"d_model", 1, MOST_DIM, 0, &out->dim},
        {"num_heads", 1, MOST_DIM, 0, &out->heads},
        {"d_kv", 1, ITH_ATTN_HEAD_DIM_MAX, 0, &out->head_dim},
        {"d_ff", 1, MOST_DIM, 0, &out->ffn_dim},
        {"num_layers", 1, MOST_LAYERS, 0, &out->layers},
        {"relative_attention_num_buckets", 4, MOST_DIM, 32, &out->buckets},
        {"relative_attention_max_distance", 2, MOST_DIM, 128, &out->max_distance},
    };
    ith_status status = ITH_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !status; i++)
        status = ith_json_int(context, json, sizes[i].key, sizes[i].least, sizes[i].most, sizes[i].otherwise,
                              sizes[i].value);
    if (!status)
        status = ith_json_double(context, json, "layer_norm_epsilon", 1e-6, &out->eps);
    return status;
}

static ith_status check_sizes(ith_context *context, const char *path, const ith_text_config *config)
{
    if (config->heads * config->head_dim > MOST_DIM)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: num_heads x d_kv is %lld, more than %d", path,
                        (long long)(config->heads * config->head_dim), MOST_DIM);
    if (config->max_distance <= config->buckets / 4)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: relative_attention_max_distance is %lld; with %lld buckets it must be more than %lld",
                        path, (long long)config->max_distance, (long long)config->buckets,
                        (long long)config->buckets / 4);
    if (!(config->eps >= 0 && config->eps < 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: layer_norm_epsilon is %g; it must be of [0, 1)", path,
                        config->eps);
    return ITH_OK;
}

ith_status ith_text_config_read(ith_context *context, const char *folder, ith_text_config *out)
{
    *out = (ith_text_config){0};
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "config.json", &json);
    if (!status)
        status = check_kind(context, json);
    if (!status)
        status = read_sizes(context, json, out);
    if (!status)
        status = check_sizes(context, ith_json_path(json), out);
    ith_json_close(&json);
    return status;
}
