/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the tensors of a model component (store.h) from its list, which is ordered by name, and records for each of
 * them whether a caller has taken it. store_open.c makes the list. */
#include "../base/dtype.h"
#include "../base/hash.h"
#include "../base/size.h"
#include "../kernels/unpack.h"
#include "gguf.h"
#include "quote.h"
#include "store_parts.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ith_store_entry_by_name(const void *a, const void *b)
{
    return strcmp(((const ith_store_entry *)a)->tensor.name, ((const ith_store_entry *)b)->tensor.name);
}

ith_store_entry *ith_store_find(const ith_store *store, const char *name)
{
    const ith_store_entry key = {.tensor.name = name};
    if (!store->entry_count) /* a store of random tensors has no list */
        return NULL;
    return bsearch(&key, store->entries, (size_t)store->entry_count, sizeof key, ith_store_entry_by_name);
}

const char *ith_store_path_of(const ith_store *store, const ith_store_entry *entry)
{
    return store->shards[entry->shard].path;
}

ith_status ith_store_create(ith_context *context, ith_store **out)
{
    *out = ith_alloc_zero(context, 1, sizeof **out, "a model component");
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->context = ith_context_hold(context);
    return ITH_OK;
}

ith_status ith_store_open_random(ith_context *context, ith_dtype type, ith_store **out)
{
    ith_status status = ith_store_create(context, out);
    if (status)
        return status;
    status = ith_random_tensors_create(context, type, &(*out)->random);
    if (status)
        ith_store_close(out);
    return status;
}

int64_t ith_store_random_bytes(const ith_store *store)
{
    return store->random ? (int64_t)sizeof *store + ITH_ALLOC_HEADER + ith_random_tensors_bytes(store->random) : 0;
}

int64_t ith_store_held_bytes(const ith_store *store)
{
    int64_t bytes = ith_alloc_bytes(store) + ith_alloc_bytes(store->path) + ith_alloc_bytes(store->entries) +
                    ith_alloc_bytes(store->shards);
    for (int64_t i = 0; i < store->entry_count; i++)
        bytes += ith_alloc_bytes(store->entries[i].name);
    for (int64_t i = 0; i < store->shard_count; i++)
        bytes += ith_alloc_bytes(store->shards[i].path) + ith_tensor_file_held_bytes(store->shards[i].file);
    return bytes;
}

void ith_store_close(ith_store **store)
{
    if (!store || !*store)
        return;
    ith_context *context = (*store)->context;
    for (int64_t i = 0; i < (*store)->entry_count; i++) {
        ith_free(context, (*store)->entries[i].name);
        ith_free(context, (*store)->entries[i].factors);
        ith_free(context, (*store)->entries[i].copy);
    }
    for (int64_t i = 0; i < (*store)->shard_count; i++) {
        ith_tensor_file_close(&(*store)->shards[i].file);
        ith_free(context, (*store)->shards[i].path);
    }
    ith_free(context, (*store)->entries);
    ith_free(context, (*store)->shards);
    ith_random_tensors_free(&(*store)->random);
    ith_free(context, (*store)->path);
    ith_free(context, *store);
    ith_context_release(context);
    *store = NULL;
}

/* ---- Progress -------------------------------------------------------------------------------------------------- */

void ith_store_show(ith_store *store, int stage)
{
    int64_t bytes = ith_store_bytes(store);
    store->shown = (ith_span){.stage = stage, .end = bytes, .total = bytes};
    ith_span_show(store->context, &store->shown, 0, 1);
}

/* Adds bytes to the shown progress, which stays at 100% when a tensor is released a second time. */
static void use_bytes(ith_store *store, int64_t bytes)
{
    store->used_bytes = ith_min64(store->used_bytes + bytes, store->shown.total);
    ith_span_show(store->context, &store->shown, store->used_bytes, store->shown.total);
}

/* ---- Taking ---------------------------------------------------------------------------------------------------- */

const char *ith_store_path(const ith_store *store)
{
    return store->path;
}

const char *ith_store_file(const ith_store *store, int64_t index)
{
    return index < store->shard_count ? store->shards[index].path : NULL;
}

const ith_tensor *ith_store_at(const ith_store *store, int64_t index)
{
    return index < store->entry_count ? &store->entries[index].tensor : NULL;
}

int64_t ith_store_size(const ith_store *store, const char *name, int dim)
{
    const ith_store_entry *entry = ith_store_find(store, name);
    return entry && dim < entry->tensor.dims ? entry->tensor.shape[dim] : 0;
}

int64_t ith_store_rows(const ith_store *store, const char *name)
{
    const ith_store_entry *entry = ith_store_find(store, name);
    const int dims = entry ? entry->tensor.dims : 0;
    return dims == 2 || (dims == 3 && entry->tensor.shape[0] == 1) ? entry->tensor.shape[dims - 2] : 0;
}

int64_t ith_store_count(const ith_store *store, const char *before, const char *after, int64_t most)
{
    char name[ITH_STORE_NAME_BYTES];
    int64_t count = 0;
    for (; count < most; count++) {
        snprintf(name, sizeof name, "%s%lld%s", before, (long long)count, after);
        if (!ith_store_has(store, name))
            break;
    }
    return count;
}

bool ith_store_has(const ith_store *store, const char *name)
{
    return ith_store_find(store, name) != NULL;
}

/* Whether a tensor has exactly this shape. */
static bool has_shape(const ith_tensor *tensor, int dims, const int64_t *shape)
{
    bool same = tensor->dims == dims;
    for (int i = 0; same && i < dims; i++)
        same = tensor->shape[i] == shape[i];
    return same;
}

/* Whether a tensor of a GGUF file has this shape in one of the forms that writers give it: without sizes of 1 at the
 * beginning, or, for a filter of five sizes, with the first two multiplied, because a tensor of ggml has at most four
 * sizes. */
static bool is_flattened(const ith_tensor *tensor, int dims, const int64_t *shape)
{
    int64_t joint[4];
    for (int i = 1; i < dims && shape[i - 1] == 1; i++)
        if (has_shape(tensor, dims - i, shape + i))
            return true;
    if (dims != 5 || !ith_size_mul(shape[0], shape[1], &joint[0]))
        return false;
    memcpy(joint + 1, shape + 2, 3 * sizeof *shape);
    return has_shape(tensor, 4, joint);
}

/* Finds the tensor `name`, and checks that its type is one for weights and that it has the given shape. */
static ith_status look_up(ith_context *context, ith_store *store, const char *name, int dims, const int64_t *shape,
                          ith_store_entry **out)
{
    ith_store_entry *entry = ith_store_find(store, name);
    if (!entry)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: tensor '%s' is missing", store->path, name);
    const ith_tensor *tensor = &entry->tensor;
    const char *path = ith_store_path_of(store, entry);
    if (!ith_dtype_is_operand(tensor->dtype) && !ith_unpack_has(tensor->dtype))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: tensor '%s' is of type %s; weights must be F32, F16, BF16, fp8, I8 or of a type of GGUF "
                        "files",
                        path, name, ith_tensor_type_name(tensor->dtype));
    if (!has_shape(tensor, dims, shape) &&
        !(ith_gguf_is(store->shards[entry->shard].file) && is_flattened(tensor, dims, shape)))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: tensor '%s' has the shape %s; the configuration asks for %s",
                        path, name, ith_shape_print(tensor->dims, tensor->shape).text,
                        ith_shape_print(dims, shape).text);
    *out = entry;
    return ITH_OK;
}

ith_status ith_store_take(ith_context *context, ith_store *store, const char *name, int dims, const int64_t *shape,
                          const ith_tensor **out)
{
    if (out)
        *out = NULL;
    if (store->random)
        return ith_random_tensors_take(store->random, name, dims, shape, out);
    ith_store_entry *entry = NULL;
    ith_status status = look_up(context, store, name, dims, shape, &entry);
    if (status)
        return status;
    ith_tensor *tensor = &entry->tensor;
    entry->taken = true;
    if (!out)
        return ITH_OK;
    if (!entry->copy)
        status = ith_tensor_align(context, ith_store_path_of(store, entry), tensor, &entry->copy);
    if (status)
        return status;
    if (entry->copy)
        tensor->data = entry->copy;
    *out = tensor;
    return ITH_OK;
}

const char *ith_store_file_of(const ith_store *store, const ith_tensor *tensor)
{
    return store->random ? "the random weights" : ith_store_path_of(store, ith_store_find(store, tensor->name));
}

int64_t ith_store_bytes(const ith_store *store)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < store->entry_count; i++)
        bytes += store->entries[i].tensor.bytes;
    return bytes;
}

ith_status ith_store_check_unchanged(ith_context *context, const ith_store *store)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < store->shard_count && !status; i++)
        status = ith_tensor_file_check(context, store->shards[i].file);
    return status;
}

void ith_store_release(ith_store *store, const ith_tensor *tensor)
{
    ith_store_entry *entry = tensor && !store->random ? ith_store_find(store, tensor->name) : NULL;
    if (!entry)
        return;
    ith_free(store->context, entry->copy);
    entry->copy = NULL;
    entry->tensor.data = entry->origin->data;
    use_bytes(store, entry->tensor.bytes);
}

void ith_store_retain(ith_store *store, const ith_tensor *tensor)
{
    if (tensor && !store->random)
        use_bytes(store, tensor->bytes);
}

void ith_store_skip(ith_store *store, const char *prefix)
{
    size_t length = strlen(prefix);
    for (int64_t i = 0; i < store->entry_count; i++)
        if (!strncmp(store->entries[i].tensor.name, prefix, length)) {
            store->entries[i].taken = true;
            use_bytes(store, store->entries[i].tensor.bytes);
        }
}

ith_status ith_store_hash(ith_context *context, const ith_store *store, uint64_t *out)
{
    uint64_t hash = 0;
    for (int64_t i = 0; i < store->entry_count; i++) {
        const ith_store_entry *entry = &store->entries[i];
        const ith_tensor *t = &entry->tensor;
        const int64_t numbers[2] = {t->dtype, t->bytes};
        hash = ith_hash(hash + 1, t->name, (int64_t)strlen(t->name));
        hash = ith_hash(hash, numbers, sizeof numbers);
        hash = ith_hash(hash, t->shape, t->dims * (int64_t)sizeof *t->shape);
        ith_status status = ith_tensor_hash_sample(context, ith_store_path_of(store, entry), t, &hash);
        if (status)
            return status;
    }
    *out = hash;
    return ITH_OK;
}

ith_status ith_store_check_all_taken(ith_context *context, const ith_store *store)
{
    const ith_store_entry *first = NULL;
    int64_t count = 0;
    for (int64_t i = 0; i < store->entry_count; i++)
        if (!store->entries[i].taken) {
            first = first ? first : &store->entries[i];
            count++;
        }
    if (!first) {
        ith_span_show(context, &store->shown, 1, 1); /* all tensors were used: the progress shows 100% */
        return ITH_OK;
    }
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: tensor '%s' is unknown (%lld such): this is another kind of model than its configuration says",
                    ith_store_path_of(store, first), ith_quote(first->origin->name).text, (long long)count);
}
