/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a transformer in files of another origin than diffusers: from the shapes of its tensors, and from the
 * config.json of the original code, if there is one beside them. */
#include "../../base/context.h"
#include "../part/config_fields.h"
#include "../source/recognise.h"
#include "dit.h"

#include <string.h>

#define PUBLISHED_HEAD_DIM 128 /* of every published model */

/* Reads one dimension of a tensor. */
static ith_status read_size(ith_context *context, const ith_store *store, const char *name, int dim, int64_t *out)
{
    *out = ith_store_size(store, name, dim);
    if (*out > 0)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_FORMAT, "%s: the transformer's sizes are unknown, because its tensor '%s' is %s",
                    ith_store_path(store), name, ith_store_has(store, name) ? "of another shape" : "missing");
}

static ith_status read_shapes(ith_context *context, const ith_store *store, ith_dit_config *out)
{
    const struct {
        const char *tensor;
        int dim;
        int64_t *value;
    } sizes[] = {
        {"patch_embedding.bias", 0, &out->dim},
        {"proj_out.weight", 0, &out->out_channels},
        {"blocks.0.ffn.net.0.proj.weight", 0, &out->ffn_dim},
        {"condition_embedder.text_embedder.linear_1.weight", 1, &out->text_dim},
        {"condition_embedder.time_embedder.linear_1.weight", 1, &out->freq_dim},
    };
    ith_status status = ITH_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = read_size(context, store, sizes[i].tensor, sizes[i].dim, sizes[i].value);
    if (!status) /* some GGUF files have the first two sizes of this filter as one */
        status = read_size(context, store, "patch_embedding.weight", 0, &out->in_channels);
    if (!status && ith_store_size(store, "patch_embedding.weight", 4))
        status = read_size(context, store, "patch_embedding.weight", 1, &out->in_channels);
    else
        out->in_channels /= out->dim ? out->dim : 1;
    out->out_channels /= ITH_DIT_PATCH;
    out->layers = ith_store_count(store, "blocks.", ".attn1.to_q.weight", ITH_DIT_MOST_LAYERS);
    out->patch[0] = 1, out->patch[1] = out->patch[2] = 2;
    out->positions = 1024, out->eps = 1e-6;
    out->raw_cross = !ith_store_has(store, "blocks.0.norm2.weight");
    out->image_dim = ith_store_size(store, "condition_embedder.image_embedder.norm1.weight", 0);
    if (out->image_dim)
        out->image_rows = ith_store_rows(store, "condition_embedder.image_embedder.pos_embed");
    return status;
}

/* Divides the width into `heads` heads; 0: config.json does not give their number, so they get the published size. */
static ith_status split_heads(ith_context *context, const ith_store *store, int64_t heads, ith_dit_config *out)
{
    out->heads = heads > 0 ? heads : out->dim % PUBLISHED_HEAD_DIM ? 0 : out->dim / PUBLISHED_HEAD_DIM;
    out->head_dim = out->heads ? out->dim / out->heads : 0;
    if (out->heads && out->dim % out->heads == 0 && out->head_dim % 2 == 0)
        return ITH_OK;
    if (heads > 0)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: a width of %lld cannot be divided into the %lld heads of its config.json",
                        ith_store_path(store), (long long)out->dim, (long long)heads);
    return ith_fail(
        context, ITH_ERR_FORMAT,
        "%s: a width of %lld is not a multiple of %d: a config.json beside the file must say how many heads "
        "there are",
        ith_store_path(store), (long long)out->dim, PUBLISHED_HEAD_DIM);
}

static const ith_config_field original_fields[] = {
    {"model_type", "absent|\"t2v\"|\"i2v\"|\"flf2v\"|\"ti2v\"", ITH_KINDS_SUPPORTED " are supported"},
    {"qk_norm", "absent|true", NULL},
    {"window_size", "absent|[-1,-1]", NULL},
    {"patch_size", "absent|[1,2,2]", NULL},
    {"text_len", "absent|512", NULL},
};

/* Checks that the original code's config.json and the weights have the same sizes. */
static ith_status check_sizes(ith_context *context, const ith_json *json, const ith_dit_config *shapes)
{
    const struct {
        const char *key;
        int64_t found;
    } sizes[] = {{"dim", shapes->dim},           {"ffn_dim", shapes->ffn_dim},      {"in_dim", shapes->in_channels},
                 {"num_layers", shapes->layers}, {"out_dim", shapes->out_channels}, {"freq_dim", shapes->freq_dim},
                 {"text_dim", shapes->text_dim}};
    bool norm = !shapes->raw_cross;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t said;
        ith_status status = ith_json_int(context, json, sizes[i].key, 1, INT32_MAX, sizes[i].found, &said);
        if (status)
            return status;
        if (said != sizes[i].found)
            return ith_fail(context, ITH_ERR_FORMAT, "%s: %s is %lld, but %lld in the weights beside it",
                            ith_json_path(json), sizes[i].key, (long long)said, (long long)sizes[i].found);
    }
    ith_status status = ith_json_bool(context, json, "cross_attn_norm", norm, &norm);
    if (status || norm == !shapes->raw_cross)
        return status;
    return ith_fail(context, ITH_ERR_FORMAT, "%s: cross_attn_norm is %s, but the weights beside it have %s norm3",
                    ith_json_path(json), norm ? "true" : "false", norm ? "no" : "a");
}

/* Reads the number of heads and eps from the original code's config.json in `folder`. */
static ith_status read_original(ith_context *context, const char *folder, const ith_dit_config *shapes, int64_t *heads,
                                double *eps)
{
    ith_json *json = NULL;
    ith_status status = ith_json_read_in(context, folder, "config.json", &json);
    if (!status)
        status =
            ith_config_fields_check(context, json, original_fields, sizeof original_fields / sizeof *original_fields);
    if (!status)
        status = check_sizes(context, json, shapes);
    if (!status)
        status = ith_json_int(context, json, "num_heads", 1, shapes->dim, 0, heads);
    if (!status)
        status = ith_json_double(context, json, "eps", 1e-6, eps);
    if (!status)
        status = ith_dit_eps_check(context, ith_json_path(json), *eps);
    ith_json_close(&json);
    return status;
}

ith_status ith_dit_config_find(ith_context *context, const char *folder, const ith_store *store, ith_dit_config *out)
{
    ith_config_class name;
    int64_t heads = 0;
    *out = (ith_dit_config){0};
    ith_status status = ith_config_class_read(context, folder, &name);
    if (!status && !strcmp(name.text, "WanTransformer3DModel"))
        return ith_dit_config_read(context, folder, out);
    if (!status)
        status = read_shapes(context, store, out);
    if (!status && (!strcmp(name.text, "WanModel") || !strcmp(name.text, "t2v") || !strcmp(name.text, "i2v") ||
                    !strcmp(name.text, "flf2v") || !strcmp(name.text, "ti2v")))
        status = read_original(context, folder, out, &heads, &out->eps);
    if (!status)
        status = split_heads(context, store, heads, out);
    return status ? status : ith_dit_config_check(context, ith_store_path(store), out);
}
