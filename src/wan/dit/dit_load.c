/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer's weights: every tensor of diffusers' WanTransformer3DModel taken by name and shape, packed layer by
 * layer. Linear layers that read the same rows are stacked into one: q, k, v of self-attention, k, v of
 * cross-attention. The rows of proj_out, (patch row, patch column, channel) in the file, become (channel, patch row,
 * patch column). */
#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../../files/store.h"
#include "dit_weights.h"

#include <ithaca/wan.h>

#include <stdio.h>
#include <string.h>

#define STEM "diffusion_pytorch_model"
#define PATCH 4                   /* numbers of one channel in a token */
#define COPIED_TOGETHER (1 << 18) /* numbers */

typedef struct loader {
    ith_context *context;
    ith_store *store;
    const ith_dit *dit;
    char prefix[48]; /* of the names that are being taken: "" or "blocks.N." */
    bool looks_only; /* names, types and shapes are checked, and nothing is packed */
} loader;

typedef struct tensor_name {
    char text[160];
} tensor_name;

static tensor_name name_of(const loader *l, const char *module, const char *suffix)
{
    tensor_name name;
    snprintf(name.text, sizeof name.text, "%s%s%s", l->prefix, module, suffix);
    return name;
}

static ith_status load_vector(loader *l, const char *name, int64_t size, float **out)
{
    return ith_store_take_f32(l->context, l->store, name_of(l, name, "").text, 1, &size, out);
}

/* [1, rows, dim] */
static ith_status load_modulation(loader *l, int64_t rows, float **out)
{
    const int64_t shape[3] = {1, rows, l->dit->config.dim};
    return ith_store_take_f32(l->context, l->store, name_of(l, "scale_shift_table", "").text, 3, shape, out);
}

static ith_status load_linear_shaped(loader *l, const char *module, int dims, const int64_t *shape, int64_t in,
                                     ith_operand_types types, ith_linear **out)
{
    const ith_tensor *weight = NULL;
    float *bias = NULL;
    ith_status status = ith_store_take(l->context, l->store, name_of(l, module, ".weight").text, dims, shape, &weight);
    if (!status)
        status = ith_store_take_f32(l->context, l->store, name_of(l, module, ".bias").text, 1, &shape[0], &bias);
    if (!status && !l->looks_only)
        status = ith_linear_create(l->context, in, shape[0], weight->data, weight->dtype, bias, types, out);
    ith_store_release(l->store, weight);
    ith_free(l->context, bias);
    return status;
}

static ith_status load_linear(loader *l, const char *module, int64_t in, int64_t out_size, ith_operand_types types,
                              ith_linear **out)
{
    const int64_t shape[2] = {out_size, in};
    return load_linear_shaped(l, module, 2, shape, in, types, out);
}

/* As it is, or as f32. A piece at a time: it may have to come from a slow disk. */
static ith_status copy_weight(ith_context *context, char *to, ith_dtype type, const ith_tensor *weight, int64_t count)
{
    const char *from = weight->data;
    int64_t from_bytes = ith_dtype_bytes(weight->dtype), to_bytes = ith_dtype_bytes(type);
    ith_status status = ITH_OK;
    for (int64_t done = 0; done < count && !(status = ith_context_check(context)); done += COPIED_TOGETHER) {
        int64_t part = ith_min64(COPIED_TOGETHER, count - done);
        if (weight->dtype == type)
            memcpy(to + done * to_bytes, from + done * from_bytes, (size_t)(part * to_bytes));
        else
            ith_to_f32((float *)(void *)(to + done * to_bytes), from + done * from_bytes, weight->dtype, part);
    }
    return status;
}

/* The weights of up to three modules above one another, in their own type if that is one, otherwise in f32. */
static ith_status stack_weights(loader *l, const ith_tensor *const *weights, int count, ith_dtype *type, void **out)
{
    int64_t elements = weights[0]->bytes / ith_dtype_bytes(weights[0]->dtype);
    *type = weights[0]->dtype;
    for (int i = 1; i < count; i++)
        if (weights[i]->dtype != *type)
            *type = ITH_F32;
    int64_t bytes = elements * ith_dtype_bytes(*type);
    char *stack = ith_alloc(l->context, count, bytes, "stacked weights");
    *out = stack;
    if (!stack)
        return ITH_ERR_MEMORY;
    ith_status status = ITH_OK;
    for (int i = 0; i < count && !status; i++)
        status = copy_weight(l->context, stack + i * bytes, *type, weights[i], elements);
    return status;
}

/* modules[i]: dim to dim each; one layer of dim to count dim. */
static ith_status load_stacked(loader *l, const char *const *modules, int count, ith_linear **out)
{
    const int64_t dim = l->dit->config.dim, shape[2] = {dim, dim};
    const ith_tensor *weights[3] = {NULL};
    void *stack = NULL;
    float *bias = ith_alloc(l->context, count * dim, sizeof *bias, "stacked biases"), *one = NULL;
    ith_dtype type = ITH_DTYPE_NONE;
    ith_status status = bias ? ITH_OK : ITH_ERR_MEMORY;
    for (int i = 0; i < count && !status; i++) {
        status = ith_store_take(l->context, l->store, name_of(l, modules[i], ".weight").text, 2, shape, &weights[i]);
        if (!status)
            status = ith_store_take_f32(l->context, l->store, name_of(l, modules[i], ".bias").text, 1, &dim, &one);
        if (!status)
            memcpy(bias + i * dim, one, (size_t)dim * sizeof *bias);
        ith_free(l->context, one);
        one = NULL;
    }
    if (!status && !l->looks_only)
        status = stack_weights(l, weights, count, &type, &stack);
    if (!status && !l->looks_only)
        status = ith_linear_create(l->context, dim, count * dim, stack, type, bias, l->dit->types.products, out);
    for (int i = 0; i < count; i++)
        ith_store_release(l->store, weights[i]);
    ith_free(l->context, stack);
    ith_free(l->context, bias);
    return status;
}

static ith_status load_block_vectors(loader *l, ith_dit_block *block)
{
    const struct {
        const char *name;
        float **out;
    } vectors[] = {{"attn1.norm_q.weight", &block->self_norm_q},  {"attn1.norm_k.weight", &block->self_norm_k},
                   {"attn2.norm_q.weight", &block->cross_norm_q}, {"attn2.norm_k.weight", &block->cross_norm_k},
                   {"norm2.weight", &block->cross_weight},        {"norm2.bias", &block->cross_bias}};
    ith_status status = load_modulation(l, ITH_DIT_MODULATIONS, &block->modulation);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0] && !status; i++)
        status = load_vector(l, vectors[i].name, l->dit->config.dim, vectors[i].out);
    return status;
}

static ith_status load_block(loader *l, int64_t index, ith_dit_block *block)
{
    static const char *const qkv[] = {"attn1.to_q", "attn1.to_k", "attn1.to_v"};
    static const char *const kv[] = {"attn2.to_k", "attn2.to_v"};
    const int64_t dim = l->dit->config.dim, ffn_dim = l->dit->config.ffn_dim;
    const ith_operand_types types = l->dit->types.products;
    snprintf(l->prefix, sizeof l->prefix, "blocks.%lld.", (long long)index);
    ith_status status = load_block_vectors(l, block);
    if (!status)
        status = load_stacked(l, qkv, 3, &block->qkv);
    if (!status)
        status = load_linear(l, "attn1.to_out.0", dim, dim, types, &block->self_out);
    if (!status)
        status = load_linear(l, "attn2.to_q", dim, dim, types, &block->cross_q);
    if (!status)
        status = load_stacked(l, kv, 2, &block->cross_kv);
    if (!status)
        status = load_linear(l, "attn2.to_out.0", dim, dim, types, &block->cross_out);
    if (!status)
        status = load_linear(l, "ffn.net.0.proj", dim, ffn_dim, types, &block->ffn_up);
    if (!status)
        status = load_linear(l, "ffn.net.2", ffn_dim, dim, types, &block->ffn_down);
    return status;
}

/* The patch embedding is a convolution whose kernel is its stride: a linear layer over (channel, 1, row, column). */
static ith_status load_patch(loader *l, ith_dit *dit)
{
    const ith_dit_config *c = &dit->config;
    const int64_t shape[5] = {c->dim, c->in_channels, c->patch[0], c->patch[1], c->patch[2]};
    return load_linear_shaped(l, "patch_embedding", 5, shape, c->in_channels * PATCH, ith_operands_f32(), &dit->patch);
}

static ith_status load_head(loader *l, ith_dit *dit)
{
    const int64_t dim = dit->config.dim, channels = dit->config.out_channels, rows = channels * PATCH;
    const int64_t shape[2] = {rows, dim};
    const ith_tensor *weight = NULL;
    float *bias = NULL, *ordered = ith_alloc(l->context, rows, (dim + 1) * 4, "the last layer's weights");
    ith_status status = ordered ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status = ith_store_take(l->context, l->store, "proj_out.weight", 2, shape, &weight);
    if (!status)
        status = ith_store_take_f32(l->context, l->store, "proj_out.bias", 1, &rows, &bias);
    if (status || l->looks_only)
        goto done;
    float *ordered_bias = ordered + rows * dim;
    for (int64_t row = 0; row < rows; row++) {
        int64_t from = row % PATCH * channels + row / PATCH;
        const char *source = (const char *)weight->data + from * dim * ith_dtype_bytes(weight->dtype);
        ith_to_f32(ordered + row * dim, source, weight->dtype, dim);
        ordered_bias[row] = bias[from];
    }
    status = ith_linear_create(l->context, dim, rows, ordered, ITH_F32, ordered_bias, ith_operands_f32(), &dit->head);
done:
    ith_store_release(l->store, weight);
    ith_free(l->context, ordered);
    ith_free(l->context, bias);
    return status;
}

static ith_status load_outside(loader *l, ith_dit *dit)
{
    const ith_dit_config *c = &dit->config;
    const struct {
        const char *module;
        int64_t in, out;
        ith_operand_types types;
        ith_linear **linear;
    } linears[] = {
        {"condition_embedder.time_embedder.linear_1", c->freq_dim, c->dim, ith_operands_f32(), &dit->time_1},
        {"condition_embedder.time_embedder.linear_2", c->dim, c->dim, ith_operands_f32(), &dit->time_2},
        {"condition_embedder.time_proj", c->dim, ITH_DIT_MODULATIONS * c->dim, ith_operands_f32(), &dit->time_proj},
        {"condition_embedder.text_embedder.linear_1", c->text_dim, c->dim, dit->types.products, &dit->text_1},
        {"condition_embedder.text_embedder.linear_2", c->dim, c->dim, dit->types.products, &dit->text_2},
    };
    l->prefix[0] = '\0';
    ith_status status = load_patch(l, dit);
    for (size_t i = 0; i < sizeof linears / sizeof linears[0] && !status; i++)
        status = load_linear(l, linears[i].module, linears[i].in, linears[i].out, linears[i].types, linears[i].linear);
    if (!status)
        status = load_modulation(l, 2, &dit->head_modulation);
    return status ? status : load_head(l, dit);
}

static ith_status load_all(ith_context *context, const char *folder, bool looks_only, ith_dit *dit)
{
    ith_status status = ith_dit_config_read(context, folder, &dit->config);
    if (status)
        return status;
    loader l = {.context = context, .dit = dit, .looks_only = looks_only};
    status = ith_store_open(context, folder, STEM, ITH_STORE_INDEX_FIRST, &l.store);
    if (!status && !looks_only)
        ith_store_show(l.store, ITH_STAGE_LOAD);
    if (!status)
        status = load_outside(&l, dit);
    if (!status) {
        dit->blocks = ith_alloc_zero(context, dit->config.layers, sizeof *dit->blocks, "the transformer's layers");
        status = dit->blocks ? ITH_OK : ITH_ERR_MEMORY;
    }
    for (int64_t i = 0; i < dit->config.layers && !status; i++)
        status = load_block(&l, i, &dit->blocks[i]);
    if (!status)
        status = ith_store_check_all_taken(context, l.store);
    ith_store_close(&l.store);
    return status;
}

ith_status ith_dit_load(ith_context *context, const char *folder, ith_number_types types, ith_dit **out)
{
    *out = NULL;
    ith_dit *dit = ith_alloc_zero(context, 1, sizeof *dit, "a transformer");
    if (!dit)
        return ITH_ERR_MEMORY;
    dit->types = types;
    ith_status status = load_all(context, folder, false, dit);
    if (status)
        ith_dit_free(context, &dit);
    *out = dit;
    return status;
}

ith_status ith_dit_check(ith_context *context, const char *folder)
{
    ith_dit *dit = ith_alloc_zero(context, 1, sizeof *dit, "a transformer");
    if (!dit)
        return ITH_ERR_MEMORY;
    ith_status status = load_all(context, folder, true, dit);
    ith_dit_free(context, &dit);
    return status;
}

static void free_block(ith_context *context, ith_dit_block *block)
{
    ith_linear **linears[] = {&block->qkv,       &block->self_out, &block->cross_q, &block->cross_kv,
                              &block->cross_out, &block->ffn_up,   &block->ffn_down};
    float *vectors[] = {block->modulation,   block->self_norm_q,  block->self_norm_k, block->cross_norm_q,
                        block->cross_norm_k, block->cross_weight, block->cross_bias};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        ith_linear_destroy(context, linears[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        ith_free(context, vectors[i]);
}

void ith_dit_free(ith_context *context, ith_dit **dit)
{
    if (!dit || !*dit)
        return;
    ith_dit *d = *dit;
    ith_linear **linears[] = {&d->patch, &d->time_1, &d->time_2, &d->time_proj, &d->text_1, &d->text_2, &d->head};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        ith_linear_destroy(context, linears[i]);
    for (int64_t i = 0; d->blocks && i < d->config.layers; i++)
        free_block(context, &d->blocks[i]);
    ith_free(context, d->blocks);
    ith_free(context, d->head_modulation);
    ith_free(context, d);
    *dit = NULL;
}

const ith_dit_config *ith_dit_config_of(const ith_dit *dit)
{
    return &dit->config;
}
