/* SPDX-License-Identifier: Apache-2.0 */
/* Reads config.json of a umT5 encoder. */
#include "text_config.h"

#include "../../base/count.h"
#include "../../files/json.h"
#include "../../kernels/kernel.h"
#include "../part/config_fields.h"

#include <stdio.h>
#include <string.h>

#define MOST_DIM (1 << 20)
#define MOST_VOCAB (1 << 24)
#define MOST_LAYERS 4096

/* The fields that change the result. Transformers knows hundreds of others, which do not affect the encoder. */
static const ith_config_field fields[] = {
    {"model_type", "absent|null|\"umt5\"", "the text encoder must be a umT5"},
    {"feed_forward_proj", "absent|\"gated-gelu\"", NULL},
    {"dense_act_fn", "absent|\"gelu_new\"", NULL}, /* this field and the next override feed_forward_proj */
    {"is_gated_act", "absent|true", NULL},
    {"is_decoder", "absent|null|false", "only an encoder is taken"},
    {"vocab_size", ITH_CONFIG_NOT_NULL, NULL},
    {"d_model", ITH_CONFIG_NOT_NULL, NULL},
    {"num_heads", ITH_CONFIG_NOT_NULL, NULL},
    {"d_kv", ITH_CONFIG_NOT_NULL, NULL},
    {"d_ff", ITH_CONFIG_NOT_NULL, NULL},
    {"num_layers", ITH_CONFIG_NOT_NULL, NULL},
    {"relative_attention_num_buckets", ITH_CONFIG_NOT_NULL, NULL},
    {"relative_attention_max_distance", ITH_CONFIG_NOT_NULL, NULL},
    {"layer_norm_epsilon", ITH_CONFIG_NOT_NULL, NULL},
};

/* Checks the sizes under the second names that transformers accepts: if a file has both names, their values must
 * agree. */
static ith_status check_aliases(ith_context *context, const ith_json *json, const ith_text_config *config)
{
    const struct {
        const char *key, *usual;
        int64_t value;
    } aliases[] = {
        {"hidden_size", "d_model", config->dim},
        {"num_attention_heads", "num_heads", config->heads},
        {"num_hidden_layers", "num_layers", config->layers},
        {"head_dim", "d_kv", config->head_dim},
    };
    for (int i = 0; i < ITH_COUNT(aliases); i++) {
        ith_json_text given = ith_json_print(json, aliases[i].key);
        char wanted[32];
        snprintf(wanted, sizeof wanted, "%lld", (long long)aliases[i].value);
        if (strcmp(given.text, "absent") && strcmp(given.text, wanted))
            return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: %s is %s, but %s is %s: leave out the first",
                            ith_json_path(json), aliases[i].key, given.text, aliases[i].usual, wanted);
    }
    return ITH_OK;
}

/* Reads the sizes. Their limits keep products of sizes far from overflow. */
static ith_status read_sizes(ith_context *context, const ith_json *json, ith_text_config *out)
{
    const struct {
        const char *key;
        int64_t least, most, otherwise; /* otherwise: the default of transformers for an absent field */
        int64_t *value;
    } sizes[] = {
        {"vocab_size", 1, MOST_VOCAB, 250112, &out->vocab},
        {"d_model", 1, MOST_DIM, 512, &out->dim},
        {"num_heads", 1, MOST_DIM, 6, &out->heads},
        {"d_kv", 1, ITH_ATTN_HEAD_DIM_MAX, 64, &out->head_dim},
        {"d_ff", 1, MOST_DIM, 1024, &out->ffn_dim},
        {"num_layers", 1, MOST_LAYERS, 8, &out->layers},
        {"relative_attention_num_buckets", 4, MOST_DIM, 32, &out->buckets},
        {"relative_attention_max_distance", 2, MOST_DIM, 128, &out->max_distance},
    };
    ith_status status = ITH_OK;
    for (int i = 0; i < ITH_COUNT(sizes) && !status; i++)
        status = ith_json_int(context, json, sizes[i].key, sizes[i].least, sizes[i].most, sizes[i].otherwise,
                              sizes[i].value);
    if (!status)
        status = ith_json_double(context, json, "layer_norm_epsilon", 1e-6, &out->eps);
    return status;
}

/* Checks the limits of the sizes. read_sizes has checked sizes of a config.json, by the names that they have there. */
static ith_status check_limits(ith_context *context, const char *where, const ith_text_config *c)
{
    const ith_size_limit sizes[] = {{"pieces", c->vocab, MOST_VOCAB},
                                    {"features", c->dim, MOST_DIM},
                                    {"heads", c->heads, MOST_DIM},
                                    {"numbers of a head", c->head_dim, ITH_ATTN_HEAD_DIM_MAX},
                                    {"features of the feed-forward network", c->ffn_dim, MOST_DIM},
                                    {"layers", c->layers, MOST_LAYERS},
                                    {"buckets of distances", c->buckets, MOST_DIM}};
    return ith_size_limits_check(context, where, "a text encoder", sizes, ITH_COUNT(sizes));
}

ith_status ith_text_config_check(ith_context *context, const char *where, const ith_text_config *config)
{
    ith_status status = check_limits(context, where, config);
    if (status)
        return status;
    if (config->heads * config->head_dim > MOST_DIM)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: num_heads x d_kv is %lld, more than %d", where,
                        (long long)(config->heads * config->head_dim), MOST_DIM);
    if (config->max_distance <= config->buckets / 4)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: relative_attention_max_distance is %lld; with %lld buckets it must be more than %lld",
                        where, (long long)config->max_distance, (long long)config->buckets,
                        (long long)config->buckets / 4);
    if (!(config->eps >= 0 && config->eps < 1))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: layer_norm_epsilon is %g; it must be of [0, 1)", where,
                        config->eps);
    return ITH_OK;
}

ith_status ith_text_config_read(ith_context *context, const char *folder, ith_text_config *out)
{
    *out = (ith_text_config){0};
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "config.json", &json);
    if (!status)
        status = ith_config_fields_check(context, json, fields, ITH_COUNT(fields));
    if (!status)
        status = read_sizes(context, json, out);
    if (!status)
        status = check_aliases(context, json, out);
    if (!status)
        status = ith_text_config_check(context, ith_json_path(json), out);
    ith_json_close(&json);
    return status;
}
