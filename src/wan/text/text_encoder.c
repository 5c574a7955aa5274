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
 * Only real tokens are computed. The reference pads the text and masks the padding, which gives the same rows. The
 * embedding stays in the mapped file; all other weights are packed for the products. */
#include "text_encoder.h"

#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../../files/tensor.h"
#include "../../kernels/rowops.h"
#include "../weights.h"
#include "text_attention.h"

#include <ithaca/wan.h>

#include <omp.h>

enum { Q, K, V, O, WI_0, WI_1, WO, LINEARS };

static const char *const linear_names[LINEARS] = {
    "layer.0.SelfAttention.q",   "layer.0.SelfAttention.k",     "layer.0.SelfAttention.v",
    "layer.0.SelfAttention.o",   "layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1",
    "layer.1.DenseReluDense.wo",
};

/* The weights of one layer. */
typedef struct text_layer {
    ith_linear *linears[LINEARS];
    float *attention_norm, *ffn_norm; /* [dim], weights of the norms before attention and before the FFN */
    float *bias_table;                /* [buckets, heads]: the learnt biases of the attention */
} text_layer;

struct ith_text_encoder {
    ith_text_config config;
    ith_operand_types types;
    ith_store *store;
    const ith_tensor *embedding; /* [vocab, dim], in the mapped file */
    float *final_norm;           /* [dim], weights of the last rms_norm */
    ith_weights_memory memory;
    text_layer layers[];
};

/* ---- Loading --------------------------------------------------------------------------------------------------- */

/* Loads the weights of one layer. Weights are [out, in]; inner = heads * head_dim may differ from dim. */
static void name_layer(ith_weights *w, const ith_text_encoder *encoder, text_layer *layer)
{
    const ith_text_config *c = &encoder->config;
    const int64_t inner = c->heads * c->head_dim, dim = c->dim, ffn = c->ffn_dim, table[] = {c->buckets, c->heads};
    const int64_t shapes[LINEARS][2] = {{inner, dim}, {inner, dim}, {inner, dim}, {dim, inner},
                                        {ffn, dim},   {ffn, dim},   {dim, ffn}};
    layer->attention_norm = ith_weights_floats(w, "layer.0.layer_norm.weight", 1, &dim);
    layer->ffn_norm = ith_weights_floats(w, "layer.1.layer_norm.weight", 1, &dim);
    layer->bias_table = ith_weights_floats(w, "layer.0.SelfAttention.relative_attention_bias.weight", 2, table);
    for (int i = 0; i < LINEARS; i++)
        layer->linears[i] = ith_weights_linear(w, &linear_names[i], 1, false, 2, shapes[i], encoder->types);
}

/* Lists all weights of the encoder, to load, check or count them. If the file has both shared.weight and
 * encoder.embed_tokens.weight, the latter is used, as in transformers 5. */
static void name_weights(ith_weights *w, void *model)
{
    ith_text_encoder *encoder = model;
    const int64_t embedding[] = {encoder->config.vocab, encoder->config.dim};
    bool has_own = w->store && ith_store_has(w->store, "encoder.embed_tokens.weight");
    encoder->embedding = ith_weights_tensor(w, has_own ? "encoder.embed_tokens" : "shared", 2, embedding);
    if (has_own)
        ith_store_skip(w->store, "shared.weight");
    encoder->final_norm = ith_weights_floats(w, "encoder.final_layer_norm.weight", 1, &encoder->config.dim);
    for (int64_t i = 0; i < encoder->config.layers; i++) {
        ith_weights_prefix(w, "encoder.block.%lld.", (long long)i);
        name_layer(w, encoder, &encoder->layers[i]);
    }
}

static int64_t struct_bytes(const ith_text_config *config)
{
    return (int64_t)sizeof(ith_text_encoder) + config->layers * (int64_t)sizeof(text_layer);
}

static ith_text_encoder *new_encoder(ith_context *context, const ith_text_config *config, ith_operand_types types)
{
    ith_text_encoder *encoder = ith_alloc_zero(context, 1, struct_bytes(config), "a text encoder");
    if (encoder)
        encoder->config = *config, encoder->types = types;
    return encoder;
}

/* Allocates an encoder, reads its configuration, and opens its weight files. */
static ith_status open_encoder(ith_context *context, const char *folder, ith_operand_types types,
                               ith_text_encoder **out)
{
    ith_text_config config;
    *out = NULL;
    ith_status status = ith_text_config_read(context, folder, &config);
    if (!status && !(*out = new_encoder(context, &config, types)))
        status = ITH_ERR_MEMORY;
    return status ? status : ith_store_open(context, folder, "model", ITH_STORE_FILE_FIRST, &(*out)->store);
}

ith_status ith_text_encoder_load(ith_context *context, const char *folder, ith_operand_types types,
                                 ith_text_encoder **out)
{
    ith_status status = open_encoder(context, folder, types, out);
    if (!status)
        status = ith_weights_take(context, (*out)->store, true, name_weights, *out, &(*out)->memory);
    if (status)
        ith_text_encoder_free(context, out);
    return status;
}

ith_status ith_text_encoder_check(ith_context *context, const char *folder)
{
    ith_text_encoder *encoder = NULL;
    ith_status status = open_encoder(context, folder, ith_operands_f32(), &encoder);
    if (!status)
        status = ith_weights_check(context, encoder->store, name_weights, encoder);
    ith_text_encoder_free(context, &encoder);
    return status;
}

void ith_text_encoder_free(ith_context *context, ith_text_encoder **encoder)
{
    if (!encoder || !*encoder)
        return;
    ith_text_encoder *e = *encoder;
    ith_weights_free(context, &e->memory);
    ith_store_close(&e->store);
    ith_free(context, e);
    *encoder = NULL;
}

const ith_text_config *ith_text_encoder_config(const ith_text_encoder *encoder)
{
    return &encoder->config;
}

/* ---- Encoding -------------------------------------------------------------------------------------------------- */

/* The workspace of one call of ith_text_encode. Attention and feed-forward network use `wide` in turn. */
typedef struct text_workspace {
    const ith_text_encoder *encoder;
    const ith_rowops *rowops;
    ith_text_attention attention;
    ith_linear_workspace linears;
    int64_t count;
    float *x;      /* [count, dim]: the residual stream, in the caller's array */
    float *normed; /* [count, dim]: rms_norm(x) */
    float *added;  /* [count, dim]: the result of attention or feed-forward network, to be added to x */
    float *wide;   /* q, k, v and o, each [count, heads * head_dim]; or two arrays, each [count, ffn_dim] */
} text_workspace;

/* Lays out the buffers of one call of ith_text_encode in an arena. If the arena has no memory yet, it only counts the
 * bytes. */
static void lay_out(const ith_text_encoder *encoder, int64_t count, ith_arena *arena, text_workspace *w)
{
    const ith_text_config *c = &encoder->config;
    const int64_t wide = ith_max64(4 * c->heads * c->head_dim, 2 * c->ffn_dim);
    w->normed = ith_arena_take(arena, count, c->dim * (int64_t)sizeof *w->normed);
    w->added = ith_arena_take(arena, count, c->dim * (int64_t)sizeof *w->added);
    w->wide = ith_arena_take(arena, count, wide * (int64_t)sizeof *w->wide);
    ith_linear_workspace_lay_out(encoder->memory.linears, omp_get_max_threads(), count, arena, &w->linears);
    ith_text_attention_lay_out(c, count, arena, &w->attention);
}

/* Computes y = rms_norm(w->x), where `weight` [dim] is the weight of the norm. */
static void normalise(const text_workspace *w, const float *weight, float *y)
{
    int64_t dim = w->encoder->config.dim;
    float eps = (float)w->encoder->config.eps;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < w->count; i++)
        w->rowops->rms_norm(y + i * dim, w->x + i * dim, weight, dim, eps);
}

static void add_to_x(const text_workspace *w)
{
    int64_t dim = w->encoder->config.dim;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < w->count; i++)
        w->rowops->add_gated(w->x + i * dim, w->added + i * dim, NULL, dim);
}

static ith_status apply(ith_context *context, const text_workspace *w, const text_layer *layer, int which,
                        const float *x, float *y)
{
    return ith_linear_apply_rows(context, layer->linears[which], &w->linears, w->count, x, y);
}

/* The self-attention: x += o(attention(q(n), k(n), v(n))), with n = rms_norm(x) */
static ith_status add_attention(ith_context *context, const text_workspace *w, const text_layer *layer)
{
    const ith_text_config *config = &w->encoder->config;
    int64_t floats = w->count * config->heads * config->head_dim;
    float *q = w->wide, *k = q + floats, *v = k + floats, *o = v + floats;
    normalise(w, layer->attention_norm, w->normed);
    ith_status status = apply(context, w, layer, Q, w->normed, q);
    if (!status)
        status = apply(context, w, layer, K, w->normed, k);
    if (!status)
        status = apply(context, w, layer, V, w->normed, v);
    if (status)
        return status;
    status = ith_text_attention_apply(&w->attention, q, k, v, layer->bias_table, o);
    if (!status)
        status = apply(context, w, layer, O, o, w->added);
    if (!status)
        add_to_x(w);
    return status;
}

/* The feed-forward network: x += wo(gelu_tanh(wi_0(n)) * wi_1(n)), with n = rms_norm(x) */
static ith_status add_feed_forward(ith_context *context, const text_workspace *w, const text_layer *layer)
{
    int64_t width = w->encoder->config.ffn_dim;
    float *gate = w->wide, *up = gate + w->count * width;
    normalise(w, layer->ffn_norm, w->normed);
    ith_status status = apply(context, w, layer, WI_0, w->normed, gate);
    if (!status)
        status = apply(context, w, layer, WI_1, w->normed, up);
    if (status)
        return status;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < w->count; i++)
        w->rowops->gelu_tanh_mul(gate + i * width, gate + i * width, up + i * width, width);
    status = apply(context, w, layer, WO, gate, w->added);
    if (!status)
        add_to_x(w);
    return status;
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

/* Copies the embedding of each id to its row of x. The rows are spread over the file, so each may cause a page fault.
 * Therefore an interruption is checked for before each row. */
static ith_status embed(ith_context *context, const ith_text_encoder *encoder, const int32_t *ids, int64_t count,
                        float *x)
{
    ith_status status = ITH_OK;
    const ith_tensor *embedding = encoder->embedding;
    const char *file = ith_store_file_of(encoder->store, embedding);
    int64_t dim = encoder->config.dim;
    for (int64_t i = 0; i < count && !status; i++)
        if (!(status = ith_context_check(context)))
            status = ith_tensor_part_to_f32(context, file, embedding, ids[i] * dim, dim, x + i * dim);
    return status;
}

/* Applies all layers. The error message of an interruption names the layer that was interrupted. */
static ith_status run_layers(ith_context *context, const text_workspace *w, const ith_span *span)
{
    const ith_text_encoder *encoder = w->encoder;
    const int64_t layers = encoder->config.layers;
    for (int64_t i = 0; i < layers; i++) {
        ith_status status = add_attention(context, w, &encoder->layers[i]);
        if (!status)
            status = add_feed_forward(context, w, &encoder->layers[i]);
        if (status == ITH_ERR_INTERRUPTED)
            return ith_fail(context, status, "stopped in layer %lld of %lld of the text encoder", (long long)i + 1,
                            (long long)layers);
        if (status)
            return status;
        ith_span_show(context, span, i + 1, layers + 1);
    }
    return ITH_OK;
}

static ith_status encode(ith_context *context, text_workspace *w, const int32_t *ids, const ith_span *span)
{
    const ith_text_encoder *encoder = w->encoder;
    ith_status status = ith_text_attention_open(context, &encoder->config, &w->attention);
    if (!status)
        status = embed(context, encoder, ids, w->count, w->x);
    if (!status)
        status = run_layers(context, w, span);
    if (!status) {
        normalise(w, encoder->final_norm, w->x);
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
    text_workspace w = {
        .encoder = encoder, .rowops = ith_rowops_choose(ith_context_cpu(context)), .count = count, .x = rows};
    ith_arena arena = {0};
    lay_out(encoder, count, &arena, &w);
    if ((status = ith_arena_allocate(context, &arena, "the text encoder's workspace")))
        return status;
    lay_out(encoder, count, &arena, &w);
    status = encode(context, &w, ids, span);
    ith_free(context, arena.base);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Predicts the peak memory of the encoder: its weights, and the buffers of one call of ith_text_encode. */
ith_status ith_text_encoder_bytes(ith_context *context, const ith_text_config *config, ith_operand_types types,
                                  int64_t count, int64_t *bytes)
{
    ith_text_encoder *encoder = new_encoder(context, config, types);
    if (!encoder)
        return ITH_ERR_MEMORY;
    text_workspace workspace;
    ith_arena arena = {0};
    int64_t plan = 0;
    ith_status status = ith_weights_outline(context, name_weights, encoder, &encoder->memory);
    if (!status)
        status = ith_text_attention_plan_bytes(context, config, count, &plan);
    if (!status) {
        lay_out(encoder, count, &arena, &workspace);
        *bytes = struct_bytes(config) + encoder->memory.bytes + 2 * ITH_ALLOC_HEADER + arena.used_bytes + plan;
    }
    ith_text_encoder_free(context, &encoder);
    return status;
}
