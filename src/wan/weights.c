/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a model's tensors in its files by name and shape, and reads them into one allocation (weights.h). */
#include "weights.h"

#include "../base/dtype.h"
#include "../base/size.h"
#include "../files/tensor.h"

#include <ithaca/wan.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_STACKED 3            /* the most weights stacked in one linear layer: for q, k and v */
#define COPIED_TOGETHER (1 << 18) /* numbers that are copied between two checks for an interruption */

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

static void read_floats(ith_weights *w, tensor_name name, int dims, const int64_t *shape, float *to)
{
    const ith_tensor *tensor = take(w, name, dims, shape);
    if (tensor)
        w->status = ith_tensor_part_to_f32(w->context, ith_store_file_of(w->store, tensor), tensor, 0,
                                           elements(dims, shape), to);
    ith_store_release(w->store, tensor);
}

float *ith_weights_floats(ith_weights *w, const char *name, int dims, const int64_t *shape)
{
    float *floats = ith_arena_take(&w->arena, elements(dims, shape), sizeof *floats);
    read_floats(w, name_of(w, name, ""), dims, shape, floats);
    return floats;
}

const ith_tensor *ith_weights_tensor(ith_weights *w, const char *module, int dims, const int64_t *shape)
{
    return take(w, name_of(w, module, ".weight"), dims, shape);
}

/* ---- Linear layers --------------------------------------------------------------------------------------------- */

ith_linear *ith_weights_pack(ith_weights *w, int64_t in, int64_t out, const void *weight, ith_dtype type,
                             const float *bias, ith_operand_types types)
{
    if (w->status || !w->linears)
        return NULL;
    ith_linear *linear = ith_linear_lay_out(w->linears, in, out, types, &w->arena);
    w->status = ith_linear_set_status(w->linears);
    if (!w->status && w->reads)
        w->status = ith_linear_pack(w->context, linear, weight, type, bias, w->scratch);
    return linear;
}

/* Copies a weight, and converts it to f32 if `type` is not its own type. The file may be on a slow disk, so an
 * interruption is checked for before every COPIED_TOGETHER numbers. */
static ith_status copy_weight(ith_context *context, char *to, ith_dtype type, const ith_tensor *weight)
{
    const char *from = weight->data;
    int64_t from_bytes = ith_dtype_bytes(weight->dtype), to_bytes = ith_dtype_bytes(type);
    int64_t count = weight->bytes / from_bytes;
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

/* Copies the weights of several modules, one below the other, into one new matrix, in their common type, or in f32 if
 * their types differ. */
static void *stack_weights(ith_weights *w, const ith_tensor *const *weights, int count, int64_t numbers,
                           ith_dtype *type)
{
    *type = weights[0]->dtype;
    for (int i = 1; i < count; i++)
        if (weights[i]->dtype != *type)
            *type = ITH_F32;
    int64_t bytes = numbers * ith_dtype_bytes(*type);
    char *stack = ith_alloc(w->context, count, bytes, "stacked weights");
    if (!stack)
        w->status = ITH_ERR_MEMORY;
    for (int i = 0; i < count && !w->status; i++)
        w->status = copy_weight(w->context, stack + i * bytes, *type, weights[i]);
    return stack;
}

ith_linear *ith_weights_linear(ith_weights *w, const char *const *modules, int count, bool has_bias, int dims,
                               const int64_t *shape, ith_operand_types types)
{
    const ith_tensor *weights[MOST_STACKED] = {NULL};
    const int64_t numbers = elements(dims, shape), rows = shape[0];
    ith_linear *linear = NULL;
    void *stack = NULL;
    float *bias = w->reads && has_bias ? ith_alloc(w->context, count * rows, sizeof *bias, "a bias") : NULL;
    if (w->reads && has_bias && !bias)
        w->status = ITH_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        weights[i] = take(w, name_of(w, modules[i], ".weight"), dims, shape);
        if (has_bias)
            read_floats(w, name_of(w, modules[i], ".bias"), 1, &rows, bias ? bias + i * rows : NULL);
    }
    ith_dtype type = w->reads && !w->status ? weights[0]->dtype : ITH_DTYPE_NONE;
    if (count > 1 && w->reads && !w->status)
        stack = stack_weights(w, weights, count, numbers, &type);
    linear = ith_weights_pack(w, numbers / rows, count * rows,
                              stack        ? stack
                              : weights[0] ? weights[0]->data
                                           : NULL,
                              type, bias, types);
    for (int i = 0; i < count; i++)
        ith_store_release(w->store, weights[i]);
    ith_free(w->context, stack);
    ith_free(w->context, bias);
    return linear;
}

/* ---- The whole model ------------------------------------------------------------------------------------------- */

/* Calls name_all, which finds every tensor of the model, then checks that the weight files hold no other tensor. */
static ith_status check(ith_weights *w, ith_weights_fn name_all, void *model)
{
    name_all(w, model);
    return w->status ? w->status : ith_store_check_all_taken(w->context, w->store);
}

ith_status ith_weights_check(ith_context *context, ith_store *store, ith_weights_fn name_all, void *model)
{
    ith_weights w = {.context = context, .store = store};
    return check(&w, name_all, model);
}

ith_status ith_weights_outline(ith_context *context, ith_weights_fn name_all, void *model, ith_weights_memory *memory)
{
    ith_status status = memory->linears ? ITH_OK : ith_linear_set_create(context, &memory->linears);
    if (status)
        return status;
    ith_weights w = {.context = context, .linears = memory->linears};
    name_all(&w, model);
    memory->bytes = w.arena.used_bytes + ITH_ALLOC_HEADER + ith_linear_set_bytes(memory->linears);
    return w.status;
}

ith_status ith_weights_take(ith_context *context, ith_store *store, bool shows, ith_weights_fn name_all, void *model,
                            ith_weights_memory *memory)
{
    ith_status status = memory->linears ? ITH_OK : ith_linear_set_create(context, &memory->linears);
    if (status)
        return status;
    ith_weights w = {.context = context, .store = store, .linears = memory->linears};
    status = check(&w, name_all, model);
    memory->bytes = w.arena.used_bytes + ITH_ALLOC_HEADER + ith_linear_set_bytes(w.linears);
    if (!status)
        status = ith_arena_allocate(context, &w.arena, "a model's weights");
    if (status)
        return status;
    memory->arena = w.arena.base;
    w.scratch = ith_alloc(context, ith_linear_packing_bytes(w.linears), 1, "weights being packed");
    if (!w.scratch)
        return ITH_ERR_MEMORY;
    w.reads = true, w.prefix[0] = '\0';
    if (shows)
        ith_store_show(store, ITH_STAGE_LOAD);
    status = check(&w, name_all, model);
    ith_free(context, w.scratch);
    return status;
}

void ith_weights_free(ith_context *context, ith_weights_memory *memory)
{
    ith_linear_set_destroy(&memory->linears);
    ith_free(context, memory->arena);
    *memory = (ith_weights_memory){0};
}
