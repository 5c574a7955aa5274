/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a model's tensors in its files by name and shape, and makes its layers and vectors in one allocation
 * (weights.h). */
#include "weights.h"

#include "../../files/tensor.h"

#include <ithaca/wan.h>

#include <stdarg.h>
#include <stdio.h>

/* The name of a tensor, returned by value. */
typedef struct tensor_name {
    char text[224];
} tensor_name;

static tensor_name name_of(const ith_weights *w, const char *module, const char *suffix)
{
    tensor_name name;
    snprintf(name.text, sizeof name.text, "%s%s%s", w->prefix, module, suffix);
    return name;
}

static int64_t elements(int dims, const int64_t *shape)
{
    int64_t count = 1;
    for (int i = 0; i < dims; i++)
        count *= shape[i];
    return count;
}

void ith_weights_prefix(ith_weights *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->prefix, sizeof w->prefix, format, arguments);
    va_end(arguments);
}

/* Finds a tensor in the weight files, and checks its shape. Returns NULL if tensors are only checked or counted. */
static const ith_tensor *take(ith_weights *w, tensor_name name, int dims, const int64_t *shape)
{
    const ith_tensor *tensor = NULL;
    if (!w->status && w->store)
        w->status = ith_store_take(w->context, w->store, name.text, dims, shape, w->reads ? &tensor : NULL);
    return tensor;
}

/* Finds the scales of a tensor that was taken. */
static void find_scale(ith_weights *w, const ith_tensor *tensor, const float **scale, int64_t *stride)
{
    *scale = NULL, *stride = 0;
    if (tensor && !w->status)
        w->status = ith_store_scale(w->context, w->store, tensor, scale, stride);
}

/* Refuses a tensor that has scales. */
static void refuse_scale(ith_weights *w, const ith_tensor *tensor)
{
    const float *scale;
    int64_t stride;
    find_scale(w, tensor, &scale, &stride);
    if (scale)
        w->status = ith_fail(w->context, ITH_ERR_UNSUPPORTED,
                             "%s: tensor '%s' has scales, which only embeddings and matrices of linear layers may have",
                             ith_store_file_of(w->store, tensor), tensor->name);
}

static void read_floats(ith_weights *w, tensor_name name, int dims, const int64_t *shape, float *to)
{
    const ith_tensor *tensor = take(w, name, dims, shape);
    refuse_scale(w, tensor);
    if (tensor && !w->status)
        w->status = ith_tensor_part_to_f32(w->context, ith_store_file_of(w->store, tensor), tensor, 0,
                                           elements(dims, shape), to);
    ith_store_release(w->store, tensor);
    if (!w->status && w->store)
        w->status = ith_lora_floats(w->context, w->lora, name.text, elements(dims, shape), true, w->reads ? to : NULL);
}

float *ith_weights_floats(ith_weights *w, const char *name, int dims, const int64_t *shape)
{
    float *floats = ith_arena_take(&w->arena, elements(dims, shape), sizeof *floats);
    read_floats(w, name_of(w, name, ""), dims, shape, floats);
    return floats;
}

const ith_tensor *ith_weights_tensor(ith_weights *w, const char *module, int dims, const int64_t *shape)
{
    const ith_tensor *tensor = take(w, name_of(w, module, ".weight"), dims, shape);
    refuse_scale(w, tensor);
    return tensor;
}

const ith_tensor *ith_weights_table(ith_weights *w, const char *module, int dims, const int64_t *shape,
                                    const float **scale, int64_t *stride)
{
    const ith_tensor *tensor = take(w, name_of(w, module, ".weight"), dims, shape);
    find_scale(w, tensor, scale, stride);
    return tensor;
}

/* Appends the additions of the LoRA to matrix `index` [rows, in] of a layer, the weight of a module. */
static void find_additions(ith_weights *w, const char *module, int index, int64_t rows, int64_t in,
                           ith_linear_addition *additions, int64_t *count)
{
    const tensor_name name = name_of(w, module, "");
    const ith_lora_target matrix = {name.text, index, rows, in};
    if (!w->status)
        w->status = ith_lora_matrix(w->context, w->lora, &matrix, w->store != NULL, additions, count);
}

void ith_weights_matrix(ith_weights *w, const char *module, int64_t rows, int64_t in,
                        int64_t (*order)(int64_t row, int64_t rows), float *to)
{
    ith_linear_addition additions[ITH_LORA_ADDITIONS_MAX];
    const int64_t shape[2] = {rows, in};
    const ith_tensor *tensor = take(w, name_of(w, module, ".weight"), 2, shape);
    int64_t count = 0;
    const float *scale;
    int64_t stride;
    find_additions(w, module, 0, rows, in, additions, &count);
    find_scale(w, tensor, &scale, &stride);
    for (int64_t row = 0; tensor && !w->status && row < rows; row++) {
        const int64_t from = order(row, rows);
        w->status = ith_tensor_part_to_f32(w->context, ith_store_file_of(w->store, tensor), tensor, from * in, in,
                                           to + row * in);
        for (int64_t i = 0; scale && i < in; i++)
            to[row * in + i] *= scale[from * stride];
        if (!w->status)
            w->status = ith_lora_merge_row(w->context, additions, count, from, in, to + row * in);
    }
    ith_store_release(w->store, tensor);
}

/* ---- Linear layers --------------------------------------------------------------------------------------------- */

/* The parts of a linear layer. */
typedef struct layer_parts {
    const ith_linear_weight *matrices; /* [count] */
    int count;
    const ith_linear_addition *additions; /* [added] */
    int64_t added;
    const float *bias; /* NULL: none */
} layer_parts;

static ith_linear *attach(ith_weights *w, int64_t in, int64_t out, const layer_parts *parts, ith_operand_types types)
{
    if (w->status || !w->linears)
        return NULL;
    ith_linear *linear = ith_linear_lay_out_with(w->linears, in, out, types, parts->additions, parts->added, &w->arena);
    w->status = ith_linear_set_status(w->linears);
    if (!w->status && w->reads)
        w->status = ith_linear_attach(w->context, linear, parts->matrices, parts->count, parts->bias);
    if (!w->status && w->reads)
        w->status = ith_linear_add(w->context, linear, parts->additions, parts->added);
    return linear;
}

ith_linear *ith_weights_attach(ith_weights *w, int64_t in, int64_t out, const ith_linear_weight *matrices, int count,
                               const float *bias, ith_operand_types types)
{
    return attach(w, in, out, &(layer_parts){.matrices = matrices, .count = count, .bias = bias}, types);
}

ith_linear *ith_weights_linear(ith_weights *w, const char *const *modules, int count, bool has_bias, int dims,
                               const int64_t *shape, ith_operand_types types)
{
    ith_linear_weight matrices[ITH_LINEAR_MATRICES_MAX] = {{0}};
    ith_linear_addition additions[ITH_LINEAR_MATRICES_MAX * ITH_LORA_ADDITIONS_MAX];
    const ith_tensor *tensors[ITH_LINEAR_MATRICES_MAX] = {NULL};
    const int64_t rows = shape[0], in = elements(dims, shape) / rows;
    int64_t added = 0;
    float *bias = w->reads && has_bias ? ith_alloc(w->context, count * rows, sizeof *bias, "a bias") : NULL;
    if (w->reads && has_bias && !bias)
        w->status = ITH_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        tensors[i] = take(w, name_of(w, modules[i], ".weight"), dims, shape);
        if (tensors[i])
            matrices[i] = (ith_linear_weight){.data = tensors[i]->data,
                                              .type = tensors[i]->dtype,
                                              .rows = rows,
                                              .file = ith_store_file_of(w->store, tensors[i])};
        find_scale(w, tensors[i], &matrices[i].scale, &matrices[i].scale_stride);
        find_additions(w, modules[i], i, rows, in, additions, &added);
        if (has_bias)
            read_floats(w, name_of(w, modules[i], ".bias"), 1, &rows, bias ? bias + i * rows : NULL);
    }
    const layer_parts parts = {matrices, count, additions, added, bias};
    ith_linear *linear = attach(w, in, count * rows, &parts, types);
    const bool is_packed = linear && ith_linear_is_packed(linear);
    for (int i = 0; i < count; i++)
        (is_packed ? ith_store_release : ith_store_retain)(w->store, tensors[i]);
    ith_free(w->context, bias);
    return linear;
}

/* ---- The whole model ------------------------------------------------------------------------------------------- */

/* Calls name_all, which finds every tensor of the model, then checks that the weight files hold no other tensor and the
 * LoRA no other change. */
static ith_status check(ith_weights *w, ith_weights_fn name_all, void *model)
{
    ith_lora_restart(w->lora);
    name_all(w, model);
    if (!w->status)
        w->status = ith_store_check_all_taken(w->context, w->store);
    return w->status ? w->status : ith_lora_check_all_taken(w->context, w->lora);
}

ith_status ith_weights_check(ith_context *context, ith_store *store, ith_lora *lora, ith_weights_fn name_all,
                             void *model)
{
    ith_weights w = {.context = context, .store = store, .lora = lora};
    return check(&w, name_all, model);
}

ith_status ith_weights_outline(ith_context *context, ith_linear_keep keep, ith_weights_fn name_all, void *model,
                               ith_weights_memory *memory)
{
    ith_status status = ith_linear_set_create(context, keep, &memory->linears);
    if (status)
        return status;
    ith_weights w = {.context = context, .lora = memory->lora, .linears = memory->linears};
    name_all(&w, model);
    memory->bytes = w.arena.used_bytes + ITH_ALLOC_HEADER + ith_linear_set_bytes(memory->linears);
    return w.status;
}

ith_status ith_weights_sketch(ith_context *context, ith_weights_fn name_all, void *model, ith_weights_memory *memory)
{
    ith_status status = ith_linear_set_create(context, ITH_LINEAR_KEEP_NONE, &memory->linears);
    if (status)
        return status;
    ith_weights w = {.context = context, .lora = memory->lora, .linears = memory->linears};
    name_all(&w, model);
    if (!w.status)
        w.status = ith_arena_allocate(context, &w.arena, "a model's layers");
    if (w.status)
        return w.status;
    memory->arena = w.arena.base;
    w.prefix[0] = '\0';
    name_all(&w, model);
    return w.status;
}

ith_status ith_weights_take(ith_context *context, ith_linear_keep keep, bool shows, ith_weights_fn name_all,
                            void *model, ith_weights_memory *memory)
{
    ith_store *store = memory->store;
    ith_status status = memory->linears ? ITH_OK : ith_linear_set_create(context, keep, &memory->linears);
    if (status)
        return status;
    ith_weights w = {.context = context, .store = store, .lora = memory->lora, .linears = memory->linears};
    status = check(&w, name_all, model);
    memory->bytes = w.arena.used_bytes + ITH_ALLOC_HEADER + ith_linear_set_bytes(w.linears);
    if (!status)
        status = ith_arena_allocate(context, &w.arena, "a model's weights");
    if (status)
        return status;
    memory->arena = w.arena.base;
    w.reads = true, w.prefix[0] = '\0';
    if (shows)
        ith_store_show(store, ITH_STAGE_LOAD);
    return check(&w, name_all, model);
}

void ith_weights_free(ith_context *context, ith_weights_memory *memory)
{
    ith_linear_set_destroy(&memory->linears);
    ith_free(context, memory->arena);
    ith_store_close(&memory->store);
    *memory = (ith_weights_memory){0};
}
