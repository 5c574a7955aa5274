/* SPDX-License-Identifier: Apache-2.0 */
/* The umT5 encoder (T5 v1.1 with a table of position biases in every layer; arXiv:1910.10683, arXiv:2304.09151).
 *
 *     x = shared[ids]                                                   [count, dim]
 *     for every layer:
 *         n = rms_norm(x)
 *         x = x + o(attention(q(n), k(n), v(n)))                        no scale, biases by distance
 *         n = rms_norm(x)
 *         x = x + wo(gelu_tanh(wi_0(n)) * wi_1(n))
 *     rows = rms_norm(x)
 *
 * Only real tokens are computed. The reference pads the text and masks the padding, which gives the same rows. */
#include "text_encoder.h"

#include "../../files/tensor.h"
#include "../part/encoder_layers.h"
#include "../part/weights.h"
#include "text_attention.h"

#include <ithaca/wan.h>

#include <omp.h>

/* An open encoder. */
struct ith_text_encoder {
    ith_text_config config;
    ith_operand_types types;
    const ith_tensor *embedding; /* [vocab, dim], in the mapped file */
    const float *scale;          /* of row i: scale[i * scale_stride]; NULL: 1 */
    int64_t scale_stride;
    ith_encoder_norm final_norm;
    ith_weights_memory memory;
    ith_encoder_layer layers[]; /* inner = heads * head_dim, which may differ from dim */
};

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* Makes one linear layer from `count` modules that read the same rows, each from `in` to `out` numbers. */
static ith_linear *linear(ith_weights *w, const ith_text_encoder *encoder, const char *const *modules, int count,
                          int64_t in, int64_t out)
{
    return ith_weights_linear(w, modules, count, false, 2, (int64_t[]){out, in}, encoder->types);
}

/* Takes the weights of one layer. In the files, their names begin with "encoder.block.N.". */
static void name_layer(ith_weights *w, const ith_text_encoder *encoder, ith_encoder_layer *layer)
{
    static const char *const qkv[] = {"layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"};
    static const char *const o = "layer.0.SelfAttention.o", *const wi_0 = "layer.1.DenseReluDense.wi_0",
                             *const wi_1 = "layer.1.DenseReluDense.wi_1", *const wo = "layer.1.DenseReluDense.wo";
    const ith_text_config *c = &encoder->config;
    const int64_t inner = c->heads * c->head_dim, dim = c->dim, ffn = c->ffn_dim, table[] = {c->buckets, c->heads};
    layer->attention_norm.weight = ith_weights_floats(w, "layer.0.layer_norm.weight", 1, &dim);
    layer->ffn_norm.weight = ith_weights_floats(w, "layer.1.layer_norm.weight", 1, &dim);
    layer->bias_table = ith_weights_floats(w, "layer.0.SelfAttention.relative_attention_bias.weight", 2, table);
    layer->qkv = linear(w, encoder, qkv, 3, dim, inner);
    layer->o = linear(w, encoder, &o, 1, inner, dim);
    layer->up = linear(w, encoder, &wi_0, 1, dim, ffn);
    layer->gate = linear(w, encoder, &wi_1, 1, dim, ffn);
    layer->down = linear(w, encoder, &wo, 1, ffn, dim);
}

/* Lists all weights of the encoder, to take, check or count them. If the file has both shared.weight and
 * encoder.embed_tokens.weight, the second one is used, as in transformers 5. */
static void name_weights(ith_weights *w, void *model)
{
    ith_text_encoder *encoder = model;
    const int64_t embedding[] = {encoder->config.vocab, encoder->config.dim};
    bool has_own = w->store && ith_store_has(w->store, "encoder.embed_tokens.weight");
    encoder->embedding = ith_weights_table(w, has_own ? "encoder.embed_tokens" : "shared", 2, embedding,
                                           &encoder->scale, &encoder->scale_stride);
    if (has_own)
        ith_store_skip(w->store, "shared.weight");
    encoder->final_norm.weight = ith_weights_floats(w, "encoder.final_layer_norm.weight", 1, &encoder->config.dim);
    for (int64_t i = 0; i < encoder->config.layers; i++) {
        ith_weights_prefix(w, "encoder.block.%lld.", (long long)i);
        name_layer(w, encoder, &encoder->layers[i]);
    }
}

static int64_t struct_bytes(const ith_text_config *config)
{
    return (int64_t)sizeof(ith_text_encoder) + config->layers * (int64_t)sizeof(ith_encoder_layer);
}

static ith_text_encoder *new_encoder(ith_context *context, const ith_text_config *config, ith_operand_types types)
{
    ith_text_encoder *encoder = ith_alloc_zero(context, 1, struct_bytes(config), "a text encoder");
    if (encoder)
        encoder->config = *config, encoder->types = types;
    return encoder;
}

ith_status ith_text_encoder_open(ith_context *context, const ith_text_config *config, ith_store *store,
                                 ith_operand_types types, bool keeps_packed, ith_text_encoder **out)
{
    *out = new_encoder(context, config, types);
    if (!*out) {
        ith_store_close(&store);
        return ITH_ERR_MEMORY;
    }
    (*out)->memory.store = store;
    ith_status status =
        ith_weights_take(context, ith_weights_keep(keeps_packed), true, name_weights, *out, &(*out)->memory);
    if (status)
        ith_text_encoder_free(context, out);
    return status;
}

ith_status ith_text_encoder_check(ith_context *context, const ith_text_config *config, ith_store *store)
{
    ith_text_encoder *encoder = new_encoder(context, config, ith_operands_f32());
    ith_status status = encoder ? ith_weights_check(context, store, NULL, name_weights, encoder) : ITH_ERR_MEMORY;
    ith_text_encoder_free(context, &encoder);
    return status;
}

void ith_text_encoder_free(ith_context *context, ith_text_encoder **encoder)
{
    if (!encoder || !*encoder)
        return;
    ith_text_encoder *e = *encoder;
    ith_weights_free(context, &e->memory);
    ith_free(context, e);
    *encoder = NULL;
}

/* ---- Encoding -------------------------------------------------------------------------------------------------- */

/* The workspace of one call of ith_text_encode. */
typedef struct text_workspace {
    ith_text_attention attention;
    ith_linear_workspace linears;
    float *qkv; /* [count, 3 inner]: q, k, v of the attention, which overwrites q with o */
} text_workspace;

/* Lays out the buffers of one call of ith_text_encode in an arena. If the arena has no memory yet, it only counts the
 * bytes. */
static void lay_out(const ith_text_encoder *encoder, int64_t count, ith_arena *arena, text_workspace *w)
{
    const ith_text_config *c = &encoder->config;
    const int64_t inner = c->heads * c->head_dim;
    w->qkv = ith_arena_take(arena, count, 3 * inner * (int64_t)sizeof *w->qkv);
    ith_linear_workspace_lay_out(encoder->memory.linears, omp_get_max_threads(), count, arena, &w->linears);
    ith_text_attention_lay_out(c, count, arena, &w->attention);
}

/* The `attend` of an ith_encoder_run. */
static ith_status attend(const void *user, const ith_encoder_layer *layer, float *qkv)
{
    return ith_text_attention_apply(user, qkv, layer->bias_table);
}

static ith_status check_ids(ith_context *context, const ith_text_config *config, const int32_t *ids, int64_t count)
{
    if (count < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a text of %lld tokens; it has at least one, </s>",
                        (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= config->vocab)
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "token %lld of the text is %d, but the text encoder's vocabulary ends at %lld",
                            (long long)i, (int)ids[i], (long long)config->vocab - 1);
    return ITH_OK;
}

/* Copies the embedding of each id to its row of x. The rows are spread over the file, and each may wait for the
 * disk, so the loop checks for an interruption before each row. */
static ith_status embed(ith_context *context, const ith_text_encoder *encoder, const int32_t *ids, int64_t count,
                        float *x)
{
    ith_status status = ITH_OK;
    const ith_tensor *embedding = encoder->embedding;
    const char *file = ith_store_file_of(encoder->memory.store, embedding);
    int64_t dim = encoder->config.dim;
    for (int64_t i = 0; i < count && !status; i++) {
        if (!(status = ith_context_check(context)))
            status = ith_tensor_part_to_f32(context, file, embedding, ids[i] * dim, dim, x + i * dim);
        for (int64_t j = 0; encoder->scale && j < dim; j++)
            x[i * dim + j] *= encoder->scale[ids[i] * encoder->scale_stride];
    }
    return status;
}

/* rows = rms_norm(x), in place */
static void normalise_rows(const ith_text_encoder *encoder, const ith_encoder_run *run)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < run->rows; i++)
        ith_encoder_normalise(run, &encoder->final_norm, i);
}

/* Encodes `count` ids into rows, which hold x meanwhile. */
static ith_status encode(ith_context *context, const ith_text_encoder *encoder, text_workspace *w, const int32_t *ids,
                         int64_t count, float *rows, const ith_span *span)
{
    const ith_text_config *c = &encoder->config;
    const ith_rowops *rowops = ith_rowops_choose(ith_context_cpu(context));
    ith_encoder_run run = {.name = "text encoder",
                           .rowops = rowops,
                           .linears = &w->linears,
                           .rows = count,
                           .dim = c->dim,
                           .inner = c->heads * c->head_dim,
                           .eps = (float)c->eps,
                           .act = rowops->gelu_tanh,
                           .attend = attend,
                           .user = &w->attention,
                           .x = rows,
                           .qkv = w->qkv};
    ith_status status = ith_text_attention_open(context, c, &w->attention);
    if (!status)
        status = embed(context, encoder, ids, count, rows);
    if (!status)
        status = ith_encoder_layers_apply(context, &run, encoder->layers, c->layers, span, 0, 1);
    if (!status) {
        normalise_rows(encoder, &run);
        ith_span_show(context, span, 1, 1);
    }
    ith_text_attention_close(&w->attention);
    return status;
}

ith_status ith_text_encode(ith_context *context, const ith_text_encoder *encoder, const int32_t *ids, int64_t count,
                           float *rows, const ith_span *span)
{
    ith_status status = check_ids(context, &encoder->config, ids, count);
    if (status)
        return status;
    text_workspace w = {0};
    ith_arena arena = {0};
    lay_out(encoder, count, &arena, &w);
    if ((status = ith_arena_allocate(context, &arena, "the text encoder's workspace")))
        return status;
    lay_out(encoder, count, &arena, &w);
    status = encode(context, encoder, &w, ids, count, rows, span);
    ith_free(context, arena.base);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

ith_status ith_text_encoder_bytes(ith_context *context, const ith_text_config *config, ith_operand_types types,
                                  bool keeps_packed, int64_t count, int64_t *bytes)
{
    ith_text_encoder *encoder = new_encoder(context, config, types);
    if (!encoder)
        return ITH_ERR_MEMORY;
    text_workspace workspace;
    ith_arena arena = {0};
    int64_t plan = 0;
    ith_status status =
        ith_weights_outline(context, ith_weights_keep(keeps_packed), name_weights, encoder, &encoder->memory);
    if (!status)
        status = ith_text_attention_plan_bytes(context, config, count, &plan);
    if (!status) {
        lay_out(encoder, count, &arena, &workspace);
        *bytes = struct_bytes(config) + encoder->memory.bytes + 2 * ITH_ALLOC_HEADER + arena.used_bytes + plan;
    }
    ith_text_encoder_free(context, &encoder);
    return status;
}

/* ---- Work ------------------------------------------------------------------------------------------------------ */

static void list_layers(const ith_text_encoder *encoder, int64_t layers, int64_t count, const ith_work_list *list)
{
    static const char stage[] = "text";
    const ith_attn_problem problem = ith_text_attention_problem(&encoder->config, count);
    const double times = (double)layers, f32 = sizeof(float);
    ith_encoder_layer_list(&encoder->layers[0], stage, times, count, list);
    ith_work_take_attention(list, stage, times, &problem);
    /* two norms read and write a row, two sums read two and write one; so do gelu and the product with the gate */
    ith_work_take_rows(list, stage, times,
                       (double)count * f32 * (10 * (double)encoder->config.dim + 5 * (double)encoder->config.ffn_dim));
}

ith_status ith_text_encoder_list(ith_context *context, const ith_text_config *config, ith_operand_types types,
                                 int64_t count, const ith_work_list *list)
{
    ith_text_config one = *config;
    one.layers = 1;
    ith_text_encoder *encoder = new_encoder(context, &one, types);
    if (!encoder)
        return ITH_ERR_MEMORY;
    ith_status status = ith_weights_sketch(context, name_weights, encoder, &encoder->memory);
    if (!status)
        list_layers(encoder, config->layers, count, list);
    ith_text_encoder_free(context, &encoder);
    return status;
}
