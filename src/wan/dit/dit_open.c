/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the transformer's weights by their names in the files: every tensor of diffusers' WanTransformer3DModel. Linear
 * layers that read the same rows become one: q, k, v of self-attention; k, v of the text and k, v of images in
 * cross-attention. */
#include "../../base/context.h"
#include "../../files/tensor.h"
#include "../part/weights.h"
#include "device/dit_device.h"
#include "dit_weights.h"

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
static float *name_modulation(ith_weights *w, int64_t rows, int64_t dim)
{
    return ith_weights_floats(w, "scale_shift_table", 3, (int64_t[]){1, rows, dim});
}

/* Takes the weights of one layer. In the files, their names begin with "blocks.N.". */
static void name_layer(ith_weights *w, const ith_dit *dit, ith_dit_layer *layer)
{
    static const char *const qkv[] = {"attn1.to_q", "attn1.to_k", "attn1.to_v"};
    static const char *const kv[] = {"attn2.to_k", "attn2.to_v"};
    static const char *const image_kv[] = {"attn2.add_k_proj", "attn2.add_v_proj"};
    const int64_t dim = dit->config.dim, ffn_dim = dit->config.ffn_dim;
    const ith_operand_types types = dit->types.products;
    layer->modulation = name_modulation(w, ITH_DIT_MODULATIONS, dim);
    layer->self_norm_q = ith_weights_floats(w, "attn1.norm_q.weight", 1, &dim);
    layer->self_norm_k = ith_weights_floats(w, "attn1.norm_k.weight", 1, &dim);
    layer->cross_norm_q = ith_weights_floats(w, "attn2.norm_q.weight", 1, &dim);
    layer->cross_norm_k = ith_weights_floats(w, "attn2.norm_k.weight", 1, &dim);
    if (!dit->config.raw_cross) {
        layer->cross_weight = ith_weights_floats(w, "norm2.weight", 1, &dim);
        layer->cross_bias = ith_weights_floats(w, "norm2.bias", 1, &dim);
    }
    layer->qkv = stacked(w, qkv, 3, dim, dim, types);
    layer->self_out = linear(w, "attn1.to_out.0", dim, dim, types);
    layer->cross_q = linear(w, "attn2.to_q", dim, dim, types);
    layer->cross_kv = stacked(w, kv, 2, dim, dim, types);
    layer->cross_out = linear(w, "attn2.to_out.0", dim, dim, types);
    layer->ffn_up = linear(w, "ffn.net.0.proj", dim, ffn_dim, types);
    layer->ffn_down = linear(w, "ffn.net.2", ffn_dim, dim, types);
    if (!dit->config.image_dim)
        return;
    layer->cross_image_norm_k = ith_weights_floats(w, "attn2.norm_added_k.weight", 1, &dim);
    layer->cross_image_kv = stacked(w, image_kv, 2, dim, dim, types);
}

#define IMAGE "condition_embedder.image_embedder."

/* Takes the embedding of the rows of images. */
static void name_image_embedding(ith_weights *w, ith_dit *dit)
{
    const ith_dit_config *c = &dit->config;
    const ith_operand_types types = dit->types.products;
    dit->image_norm_1[0] = ith_weights_floats(w, IMAGE "norm1.weight", 1, &c->image_dim);
    dit->image_norm_1[1] = ith_weights_floats(w, IMAGE "norm1.bias", 1, &c->image_dim);
    dit->image_1 = linear(w, IMAGE "ff.net.0.proj", c->image_dim, c->image_dim, types);
    dit->image_2 = linear(w, IMAGE "ff.net.2", c->image_dim, c->dim, types);
    dit->image_norm_2[0] = ith_weights_floats(w, IMAGE "norm2.weight", 1, &c->dim);
    dit->image_norm_2[1] = ith_weights_floats(w, IMAGE "norm2.bias", 1, &c->dim);
    if (c->image_rows)
        dit->image_positions = ith_weights_floats(w, IMAGE "pos_embed", 3, (int64_t[]){1, c->image_rows, c->image_dim});
}

/* The patch embedding is a convolution whose kernel size equals its stride. So it is a linear layer over (channel, 1,
 * row, column). */
static ith_linear *patch_embedding(ith_weights *w, const ith_dit_config *c)
{
    static const char *const module = "patch_embedding";
    const int64_t shape[5] = {c->dim, c->in_channels, c->patch[0], c->patch[1], c->patch[2]};
    return ith_weights_linear(w, &module, 1, true, 5, shape, ith_operands_f32());
}

/* The place in the file of row `row` of `rows` of proj_out. The file has them in the order (patch row, patch column,
 * channel), the layer in the order (channel, patch row, patch column). */
static int64_t head_row(int64_t row, int64_t rows)
{
    return row % ITH_DIT_PATCH * (rows / ITH_DIT_PATCH) + row / ITH_DIT_PATCH;
}

/* Takes the last layer. */
static ith_linear *head(ith_weights *w, const ith_dit_config *c)
{
    const int64_t dim = c->dim, rows = c->out_channels * ITH_DIT_PATCH;
    const float *bias = ith_weights_floats(w, "proj_out.bias", 1, &rows);
    float *ordered = ith_arena_take(&w->arena, rows, dim * (int64_t)sizeof *ordered);
    float *ordered_bias = ith_arena_take(&w->arena, rows, sizeof *ordered_bias);
    ith_weights_matrix(w, "proj_out", rows, dim, head_row, ordered);
    for (int64_t row = 0; ordered_bias && !w->status && row < rows; row++)
        ordered_bias[row] = bias[head_row(row, rows)];
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
    if (c->image_dim)
        name_image_embedding(w, dit);
    dit->head_modulation = name_modulation(w, 2, c->dim);
    dit->head = head(w, c);
    for (int64_t i = 0; i < c->layers; i++) {
        ith_weights_prefix(w, "blocks.%lld.", (long long)i);
        name_layer(w, dit, &dit->layers[i]);
    }
}

/* Rows from which on merging a LoRA in each pass takes a small share of it. */
#define ROWS_TO_MERGE 16384

ith_linear_keep ith_dit_keep(const ith_lora *lora, int64_t rows)
{
    return lora && rows < ROWS_TO_MERGE ? ITH_LINEAR_KEEP_MERGED : ITH_LINEAR_KEEP_NONE;
}

/* Allocates an expert, without its weights. */
static ith_status new_dit(ith_context *context, const ith_dit_config *config, const ith_dit_choices *choices,
                          ith_dit **out)
{
    *out = ith_alloc_zero(context, 1, (int64_t)sizeof **out + config->layers * (int64_t)sizeof *(*out)->layers,
                          "a transformer");
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->config = *config, (*out)->types = choices->types, (*out)->memory.lora = choices->lora;
    (*out)->use = ith_context_device_use(context);
    (*out)->keep = (*out)->use ? ITH_LINEAR_KEEP_NONE : choices->keep;
    return ITH_OK;
}

/* Makes the layers of an expert from its store, and copies them to its device. */
static ith_status take_weights(ith_context *context, int64_t streamed, bool shows, ith_dit *dit)
{
    ith_status status = ith_weights_take(context, dit->keep, shows && !dit->use, name_weights, dit, &dit->memory);
    return status || !dit->use ? status : ith_dit_device_open(context, dit, streamed, shows, &dit->device);
}

ith_status ith_dit_open(ith_context *context, const ith_dit_config *config, ith_store *store,
                        const ith_dit_choices *choices, ith_dit **out)
{
    ith_status status = new_dit(context, config, choices, out);
    if (status) {
        ith_store_close(&store);
        return status;
    }
    (*out)->memory.store = store;
    status = take_weights(context, choices->streamed, true, *out);
    if (status)
        ith_dit_free(context, out);
    return status;
}

ith_status ith_dit_check(ith_context *context, const ith_dit_config *config, ith_store *store, ith_lora *lora)
{
    ith_dit *dit = NULL;
    ith_status status = new_dit(context, config, &(ith_dit_choices){.types = {ith_operands_f32(), ITH_F32}}, &dit);
    if (!status)
        status = ith_weights_check(context, store, lora, name_weights, dit);
    ith_dit_free(context, &dit);
    return status;
}

/* Allocates an expert, and opens a store of random weights for it. */
static ith_status open_random(ith_context *context, const ith_dit_config *config, ith_dtype type,
                              const ith_dit_choices *choices, ith_dit **out)
{
    ith_status status = new_dit(context, config, choices, out);
    return status ? status : ith_store_open_random(context, type, &(*out)->memory.store);
}

ith_status ith_dit_make_random(ith_context *context, const ith_dit_config *config, ith_dtype type,
                               const ith_dit_choices *choices, ith_dit **out)
{
    ith_status status = open_random(context, config, type, choices, out);
    if (!status)
        status = take_weights(context, 0, false, *out);
    if (status)
        ith_dit_free(context, out);
    return status;
}

ith_status ith_dit_random_bytes(ith_context *context, const ith_dit_config *config, ith_dtype type, int64_t *bytes)
{
    ith_dit *dit = NULL;
    ith_status status =
        open_random(context, config, type, &(ith_dit_choices){.types = {ith_operands_f32(), ITH_F32}}, &dit);
    if (!status)
        status = ith_weights_check(context, dit->memory.store, NULL, name_weights, dit);
    *bytes = status ? 0 : ith_store_random_bytes(dit->memory.store);
    ith_dit_free(context, &dit);
    return status;
}

ith_status ith_dit_outline(ith_context *context, const ith_dit_config *config, const ith_dit_choices *choices,
                           ith_dit **out)
{
    ith_status status = new_dit(context, config, choices, out);
    if (!status)
        status = ith_weights_outline(context, (*out)->keep, name_weights, *out, &(*out)->memory);
    if (status)
        ith_dit_free(context, out);
    return status;
}

ith_status ith_dit_sketch(ith_context *context, const ith_dit_config *config, const ith_dit_choices *choices,
                          ith_dit **out)
{
    ith_dit_config one = *config;
    one.layers = 1;
    ith_status status = new_dit(context, &one, choices, out);
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
    ith_dit_device_free(context, &(*dit)->device);
    ith_weights_free(context, &(*dit)->memory);
    ith_free(context, *dit);
    *dit = NULL;
}

const ith_dit_config *ith_dit_config_of(const ith_dit *dit)
{
    return &dit->config;
}

int64_t ith_dit_expert_device_bytes(const ith_dit *dit, int64_t texts, int64_t streamed, int ranks)
{
    if (!dit->use)
        return 0;
    const int64_t slots = streamed ? ranks * ITH_DIT_SLOTS * ith_dit_device_layer_bytes(dit) : 0;
    return ith_dit_device_bytes(dit, streamed) + slots + ith_dit_device_text_bytes(dit, texts);
}

int64_t ith_dit_streamed_layers(const ith_dit *dit, int64_t texts, int ranks, int64_t room)
{
    if (!dit->use || ith_dit_expert_device_bytes(dit, texts, 0, ranks) <= room)
        return 0;
    const int64_t lacking = ith_dit_expert_device_bytes(dit, texts, 1, ranks) - room;
    const int64_t further = lacking > 0 ? ith_div_up(lacking, ith_dit_device_layer_bytes(dit)) : 0;
    return ith_min64(1 + further, dit->config.layers);
}

int64_t ith_dit_streamed_bytes(const ith_dit *dit, int64_t streamed)
{
    return dit->use ? streamed * ith_dit_device_layer_bytes(dit) : 0;
}

int64_t ith_dit_bytes(const ith_dit *dit)
{
    return dit->memory.bytes + (int64_t)sizeof *dit + dit->config.layers * (int64_t)sizeof *dit->layers +
           ITH_ALLOC_HEADER;
}
