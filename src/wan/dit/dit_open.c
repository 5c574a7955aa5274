/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the transformer's weights by their names in the files: every tensor of diffusers' WanTransformer3DModel. Linear
 * layers that read the same rows become one: q, k, v of self-attention; k, v of cross-attention. */
#include "../../base/context.h"
#include "../../files/tensor.h"
#include "../weights.h"
#include "dit_weights.h"

#define STEM "diffusion_pytorch_model"

/* Makes one linear layer from `count` modules that read the same rows, each from `in` to `out` numbers. */
static ith_linear *stacked(ith_weights *w, const char *const *modules, int count, int64_t in, int64_t out,
                           ith_operand_types types)
{
    return ith_weights_linear(w, modules, count, true, 2, (int64_t[]){out, in}, types);
}

static ith_linear *linear(ith_weights *w, const char *module, int64_t in, int64_t out, ith_operand_types types)
{
    return stacked(w, &module, 1, in, out, types);
}

/* Takes scale_shift_table [1, rows, dim], a layer's learnt shifts, scales and gates. */
static float *modulation(ith_weights *w, int64_t rows, int64_t dim)
{
    return ith_weights_floats(w, "scale_shift_table", 3, (int64_t[]){1, rows, dim});
}

/* Takes the weights of one layer. In the files, their names begin with "blocks.N.". */
static void name_layer(ith_weights *w, const ith_dit *dit, ith_dit_layer *layer)
{
    static const char *const qkv[] = {"attn1.to_q", "attn1.to_k", "attn1.to_v"};
    static const char *const kv[] = {"attn2.to_k", "attn2.to_v"};
    const int64_t dim = dit->config.dim, ffn_dim = dit->config.ffn_dim;
    const ith_operand_types types = dit->types.products;
    layer->modulation = modulation(w, ITH_DIT_MODULATIONS, dim);
    layer->self_norm_q = ith_weights_floats(w, "attn1.norm_q.weight", 1, &dim);
    layer->self_norm_k = ith_weights_floats(w, "attn1.norm_k.weight", 1, &dim);
    layer->cross_norm_q = ith_weights_floats(w, "attn2.norm_q.weight", 1, &dim);
    layer->cross_norm_k = ith_weights_floats(w, "attn2.norm_k.weight", 1, &dim);
    layer->cross_weight = ith_weights_floats(w, "norm2.weight", 1, &dim);
    layer->cross_bias = ith_weights_floats(w, "norm2.bias", 1, &dim);
    layer->qkv = stacked(w, qkv, 3, dim, dim, types);
    layer->self_out = linear(w, "attn1.to_out.0", dim, dim, types);
    layer->cross_q = linear(w, "attn2.to_q", dim, dim, types);
    layer->cross_kv = stacked(w, kv, 2, dim, dim, types);
    layer->cross_out = linear(w, "attn2.to_out.0", dim, dim, types);
    layer->ffn_up = linear(w, "ffn.net.0.proj", dim, ffn_dim, types);
    layer->ffn_down = linear(w, "ffn.net.2", ffn_dim, dim, types);
}

/* The patch embedding is a convolution whose kernel size equals its stride. So it is a linear layer over (channel, 1,
 * row, column). */
static ith_linear *patch_embedding(ith_weights *w, const ith_dit_config *c)
{
    static const char *const module = "patch_embedding";
    const int64_t shape[5] = {c->dim, c->in_channels, c->patch[0], c->patch[1], c->patch[2]};
    return ith_weights_linear(w, &module, 1, true, 5, shape, ith_operands_f32());
}

/* Takes the last layer. The file has the rows of proj_out in the order (patch row, patch column, channel). They are
 * copied in the order (channel, patch row, patch column). */
static ith_linear *head(ith_weights *w, const ith_dit_config *c)
{
    const int64_t dim = c->dim, channels = c->out_channels, rows = channels * ITH_DIT_PATCH, shape[2] = {rows, dim};
    const ith_tensor *weight = ith_weights_tensor(w, "proj_out", 2, shape);
    const float *bias = ith_weights_floats(w, "proj_out.bias", 1, &rows);
    float *ordered = ith_arena_take(&w->arena, rows, dim * (int64_t)sizeof *ordered);
    float *ordered_bias = ith_arena_take(&w->arena, rows, sizeof *ordered_bias);
    for (int64_t row = 0; weight && !w->status && row < rows; row++) {
        int64_t from = row % ITH_DIT_PATCH * channels + row / ITH_DIT_PATCH;
        w->status = ith_tensor_part_to_f32(w->context, ith_store_file_of(w->store, weight), weight, from * dim, dim,
                                           ordered + row * dim);
        ordered_bias[row] = bias[from];
    }
    ith_store_release(w->store, weight);
    const ith_linear_weight part = {.data = ordered, .type = ITH_F32, .rows = rows};
    return ith_weights_attach(w, dim, rows, &part, 1, ordered_bias, ith_operands_f32());
}

/* Lists all weights of an expert, for ith_weights_take, ith_weights_check and ith_weights_outline. */
static void name_weights(ith_weights *w, void *model)
{
    ith_dit *dit = model;
    const ith_dit_config *c = &dit->config;
    const ith_operand_types f32 = ith_operands_f32(), types = dit->types.products;
    dit->patch = patch_embedding(w, c);
    dit->time_1 = linear(w, "condition_embedder.time_embedder.linear_1", c->freq_dim, c->dim, f32);
    dit->time_2 = linear(w, "condition_embedder.time_embedder.linear_2", c->dim, c->dim, f32);
    dit->time_proj = linear(w, "condition_embedder.time_proj", c->dim, ITH_DIT_MODULATIONS * c->dim, f32);
    dit->text_1 = linear(w, "condition_embedder.text_embedder.linear_1", c->text_dim, c->dim, types);
    dit->text_2 = linear(w, "condition_embedder.text_embedder.linear_2", c->dim, c->dim, types);
    dit->head_modulation = modulation(w, 2, c->dim);
    dit->head = head(w, c);
    for (int64_t i = 0; i < c->layers; i++) {
        ith_weights_prefix(w, "blocks.%lld.", (long long)i);
        name_layer(w, dit, &dit->layers[i]);
    }
}

/* Allocates an expert, without its weights. */
static ith_status new_dit(ith_context *context, const ith_dit_config *config, ith_number_types types, ith_dit **out)
{
    *out = ith_alloc_zero(context, 1, (int64_t)sizeof **out + config->layers * (int64_t)sizeof *(*out)->layers,
                          "a transformer");
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->config = *config, (*out)->types = types;
    return ITH_OK;
}

/* Allocates an expert, reads its configuration, and opens its weight files. */
static ith_status open_files(ith_context *context, const char *folder, ith_number_types types, ith_dit **out)
{
    ith_dit_config config;
    *out = NULL;
    ith_status status = ith_dit_config_read(context, folder, &config);
    if (!status)
        status = new_dit(context, &config, types, out);
    return status ? status : ith_store_open(context, folder, STEM, ITH_STORE_INDEX_FIRST, &(*out)->memory.store);
}

ith_status ith_dit_open(ith_context *context, const char *folder, ith_number_types types, bool keeps_packed,
                        ith_dit **out)
{
    ith_status status = open_files(context, folder, types, out);
    if (!status)
        status = ith_weights_take(context, keeps_packed, true, name_weights, *out, &(*out)->memory);
    if (status)
        ith_dit_free(context, out);
    return status;
}

ith_status ith_dit_check(ith_context *context, const char *folder, ith_store **store)
{
    ith_dit *dit = NULL;
    ith_status status = open_files(context, folder, (ith_number_types){ith_operands_f32(), ITH_F32}, &dit);
    if (!status)
        status = ith_weights_check(context, dit->memory.store, name_weights, dit);
    if (!status && store)
        *store = dit->memory.store, dit->memory.store = NULL;
    ith_dit_free(context, &dit);
    return status;
}

/* Allocates an expert, and opens a store of random weights for it. */
static ith_status open_random(ith_context *context, const ith_dit_config *config, ith_number_types types,
                              ith_dtype type, ith_dit **out)
{
    ith_status status = new_dit(context, config, types, out);
    return status ? status : ith_store_open_random(context, type, &(*out)->memory.store);
}

ith_status ith_dit_make_random(ith_context *context, const ith_dit_config *config, ith_number_types types,
                               ith_dtype type, ith_dit **out)
{
    ith_status status = open_random(context, config, types, type, out);
    if (!status)
        status = ith_weights_take(context, false, false, name_weights, *out, &(*out)->memory);
    if (status)
        ith_dit_free(context, out);
    return status;
}

ith_status ith_dit_random_bytes(ith_context *context, const ith_dit_config *config, ith_dtype type, int64_t *bytes)
{
    ith_dit *dit = NULL;
    ith_status status = open_random(context, config, (ith_number_types){ith_operands_f32(), ITH_F32}, type, &dit);
    if (!status)
        status = ith_weights_check(context, dit->memory.store, name_weights, dit);
    *bytes = status ? 0 : ith_store_random_bytes(dit->memory.store);
    ith_dit_free(context, &dit);
    return status;
}

ith_status ith_dit_outline(ith_context *context, const ith_dit_config *config, ith_number_types types,
                           bool keeps_packed, ith_dit **out)
{
    ith_status status = new_dit(context, config, types, out);
    if (!status)
        status = ith_weights_outline(context, keeps_packed, name_weights, *out, &(*out)->memory);
    if (status)
        ith_dit_free(context, out);
    return status;
}

ith_status ith_dit_sketch(ith_context *context, const ith_dit_config *config, ith_number_types types, ith_dit **out)
{
    ith_dit_config one = *config;
    one.layers = 1;
    ith_status status = new_dit(context, &one, types, out);
    if (!status)
        status = ith_weights_sketch(context, name_weights, *out, &(*out)->memory);
    if (status)
        ith_dit_free(context, out);
    return status;
}

void ith_dit_free(ith_context *context, ith_dit **dit)
{
    if (!dit || !*dit)
        return;
    ith_weights_free(context, &(*dit)->memory);
    ith_free(context, *dit);
    *dit = NULL;
}

const ith_dit_config *ith_dit_config_of(const ith_dit *dit)
{
    return &dit->config;
}

int64_t ith_dit_bytes(const ith_dit *dit)
{
    return dit->memory.bytes + (int64_t)sizeof *dit + dit->config.layers * (int64_t)sizeof *dit->layers +
           ITH_ALLOC_HEADER;
}
