/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a umT5 encoder without a config.json, from the shapes of its tensors. */
#include "text_config.h"

#include "../part/config_fields.h"

#include <string.h>

#define T5_VOCAB 32128 /* of T5, which is another model */

#define LAYER "encoder.block.0.layer."

static ith_status read_shapes(ith_context *context, const ith_store *store, ith_text_config *out)
{
    static const char table[] = LAYER "0.SelfAttention.relative_attention_bias.weight";
    const char *own = "encoder.embed_tokens.weight", *embedding = ith_store_has(store, own) ? own : "shared.weight";
    const char *path = ith_store_path(store);
    *out = (ith_text_config){.vocab = ith_store_size(store, embedding, 0),
                             .dim = ith_store_size(store, embedding, 1),
                             .heads = ith_store_size(store, table, 1),
                             .ffn_dim = ith_store_size(store, LAYER "1.DenseReluDense.wi_0.weight", 0),
                             .layers =
                                 ith_store_count(store, "encoder.block.", ".layer.0.SelfAttention.q.weight", INT16_MAX),
                             .buckets = ith_store_size(store, table, 0),
                             .max_distance = 128,
                             .eps = 1e-6};
    const int64_t inner = ith_store_size(store, LAYER "0.SelfAttention.q.weight", 0);
    out->head_dim = out->heads ? inner / out->heads : 0;
    if (out->vocab == T5_VOCAB)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: a vocabulary of %d is T5's; Wan needs the text encoder of umT5-XXL", path, T5_VOCAB);
    if (out->layers > 1 &&
        !ith_store_has(store, "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: only the first layer has position biases: this is a T5; Wan needs a umT5, each of whose "
                        "layers has its own",
                        path);
    if (out->vocab && out->dim && out->ffn_dim && out->layers && out->buckets > 3 && out->head_dim &&
        out->heads * out->head_dim == inner)
        return ith_text_config_check(context, path, out);
    return ith_fail(context, ITH_ERR_FORMAT, "%s: its tensors do not make a umT5 encoder", path);
}

ith_status ith_text_config_find(ith_context *context, const char *folder, const ith_store *store, ith_text_config *out)
{
    ith_config_class name;
    ith_status status = ith_config_class_read(context, folder, &name);
    if (!status && (strstr(name.text, "T5EncoderModel") || !strcmp(name.text, "umt5") || !strcmp(name.text, "t5")))
        return ith_text_config_read(context, folder, out);
    return status ? status : read_shapes(context, store, out);
}
