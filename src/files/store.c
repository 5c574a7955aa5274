/* SPDX-License-Identifier: Apache-2.0 */
/* The store of a model component (store.h): a list of tensors ordered by name, from one file or from several files
 * (shards). It records for each tensor whether a caller has taken it. The index of the shards has the format of
 * transformers: {"weight_map": {TENSOR: FILE, ...}}. */
#include "store.h"

#include "../base/hash.h"
#include "../base/lent_files.h"
#include "../base/observer.h"
#include "../base/size.h"
#include "json.h"
#include "mapping.h"
#include "quote.h"
#include "random_tensors.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One tensor of the store. */
typedef struct store_entry {
    ith_tensor tensor; /* as in its file, but data points to `copy` if there is one */
    int64_t shard;     /* index of the tensor's file in ith_store.shards */
    bool found;        /* whether the file contains the tensor */
    bool taken;        /* whether a caller has taken or skipped the tensor */
    void *copy;        /* aligned copy of the data if they are misaligned in the file; NULL: none */
} store_entry;

/* One file of the component. A component consists of one or more files, called shards. */
typedef struct store_shard {
    char *path;
    ith_tensor_file *file;
} store_shard;

struct ith_store {
    ith_context *context;
    char *path; /* path of the single file or of the index, for messages */
    store_shard *shards;
    int64_t shard_count;
    store_entry *entries; /* all tensors of the store, ordered by name */
    int64_t entry_count;
    /* the part of the progress display that this store fills; its total is the bytes of all tensors */
    ith_span shown;
    int64_t used_bytes;         /* bytes of the tensors released, retained or skipped so far */
    ith_random_tensors *random; /* the tensors of a store without files; NULL: the tensors come from files */
};

static int entry_by_name(const void *a, const void *b)
{
    return strcmp(((const store_entry *)a)->tensor.name, ((const store_entry *)b)->tensor.name);
}

/* Returns the entry of the tensor `name`; NULL if the store has no such tensor. */
static store_entry *find(const ith_store *store, const char *name)
{
    const store_entry key = {.tensor.name = name};
    return bsearch(&key, store->entries, (size_t)store->entry_count, sizeof key, entry_by_name);
}

/* ---- One file -------------------------------------------------------------------------------------------------- */

/* Opens a single file, and makes an entry for each of its tensors. */
static ith_status open_single(ith_store *store)
{
    ith_context *context = store->context;
    store->shards = ith_alloc_zero(context, 1, sizeof *store->shards, "a weight file");
    if (!store->shards)
        return ITH_ERR_MEMORY;
    store->shard_count = 1;
    store->shards[0].path = ith_strdup(context, store->path);
    if (!store->shards[0].path)
        return ITH_ERR_MEMORY;
    ith_status status = ith_tensor_file_open(context, store->path, &store->shards[0].file);
    if (status)
        return status;
    int64_t count = ith_tensor_file_count(store->shards[0].file);
    store->entries = ith_alloc_zero(context, count, sizeof *store->entries, "a list of weights");
    if (!store->entries)
        return ITH_ERR_MEMORY;
    store->entry_count = count;
    for (int64_t i = 0; i < count; i++) {
        store->entries[i].tensor = *ith_tensor_file_at(store->shards[0].file, i);
        store->entries[i].found = true;
    }
    return ITH_OK;
}

/* ---- Shards with an index -------------------------------------------------------------------------------------- */

/* A row of the index: a tensor and the file that holds it. */
typedef struct index_row {
    const char *name, *shard;
} index_row;

static int row_by_shard(const void *a, const void *b)
{
    return strcmp(((const index_row *)a)->shard, ((const index_row *)b)->shard);
}

/* Whether the name of a file stays inside the folder: it has no '/' and is neither "." nor "..". */
static bool is_plain_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* Reads the weight map of the index into rows, ordered by the name of the file (shard). The caller frees *rows with
 * ith_free; the strings in it belong to the document. */
static ith_status index_rows(ith_store *store, const ith_json *index, index_row **rows, int64_t *count)
{
    ith_context *context = store->context;
    ith_status status = ith_json_map_count(context, index, "weight_map", count);
    if (status)
        return status;
    const char **text = ith_alloc(context, 2 * *count, sizeof *text, "an index of weights");
    *rows = ith_alloc(context, *count, sizeof **rows, "an index of weights");
    if (!text || !*rows) {
        ith_free(context, text);
        return ITH_ERR_MEMORY;
    }
    ith_json_map(index, "weight_map", text, text + *count);
    for (int64_t i = 0; !status && i < *count; i++) {
        (*rows)[i] = (index_row){text[i], text[*count + i]};
        if (!is_plain_name((*rows)[i].shard))
            status = ith_fail(context, ITH_ERR_FORMAT,
                              "%s: tensor '%s' is said to be in '%s'; a shard must be a file of the same folder",
                              store->path, ith_quote((*rows)[i].name).text, ith_quote((*rows)[i].shard).text);
    }
    ith_free(context, text);
    if (!status)
        qsort(*rows, (size_t)*count, sizeof **rows, row_by_shard);
    return status;
}

/* Makes ith_store.entries and ith_store.shards from the rows of the index. No file is opened yet. */
static ith_status index_spread(ith_store *store, const char *folder, const index_row *rows, int64_t count)
{
    ith_context *context = store->context;
    int64_t shards = 0;
    for (int64_t i = 0; i < count; i++)
        shards += i == 0 || strcmp(rows[i].shard, rows[i - 1].shard) != 0;
    store->entries = ith_alloc_zero(context, count, sizeof *store->entries, "a list of weights");
    store->shards = ith_alloc_zero(context, shards, sizeof *store->shards, "a list of shards");
    if (!store->entries || !store->shards)
        return ITH_ERR_MEMORY;
    store->entry_count = count;
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(rows[i].shard, rows[i - 1].shard) != 0) {
            store->shards[store->shard_count].path = ith_format(context, "%s/%s", folder, rows[i].shard);
            if (!store->shards[store->shard_count++].path)
                return ITH_ERR_MEMORY;
        }
        store->entries[i].tensor.name = rows[i].name;
        store->entries[i].shard = store->shard_count - 1;
    }
    qsort(store->entries, (size_t)count, sizeof *store->entries, entry_by_name);
    return ITH_OK;
}

/* Opens the file of each shard. Stops if the context is interrupted. */
static ith_status shards_map(ith_store *store)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < store->shard_count && !status; i++) {
        if ((status = ith_context_check(store->context)))
            return status;
        status = ith_tensor_file_open(store->context, store->shards[i].path, &store->shards[i].file);
    }
    return status ? ith_fail_in(store->context, status, "a shard that %s names", store->path) : ITH_OK;
}

/* Fills in the entries of the tensors that a file (shard) contains. A tensor that the index places in another file, or
 * does not name, is an error. */
static ith_status shard_match(ith_store *store, int64_t index)
{
    const store_shard *shard = &store->shards[index];
    for (int64_t i = 0; i < ith_tensor_file_count(shard->file); i++) {
        const ith_tensor *tensor = ith_tensor_file_at(shard->file, i);
        store_entry *entry = find(store, tensor->name);
        if (!entry)
            return ith_fail(store->context, ITH_ERR_FORMAT, "%s: holds tensor '%s', which %s does not name",
                            shard->path, ith_quote(tensor->name).text, store->path);
        if (entry->shard != index)
            return ith_fail(store->context, ITH_ERR_FORMAT, "%s: holds tensor '%s', which %s places in %s", shard->path,
                            ith_quote(tensor->name).text, store->path, store->shards[entry->shard].path);
        entry->tensor = *tensor;
        entry->found = true;
    }
    return ITH_OK;
}

/* Reads the index and opens every file (shard) that it names. */
static ith_status open_shards(ith_store *store, const char *folder)
{
    ith_json *index = NULL;
    index_row *rows = NULL;
    int64_t count = 0;
    ith_status status = ith_json_read(store->context, store->path, &index);
    if (!status)
        status = index_rows(store, index, &rows, &count);
    if (!status)
        status = index_spread(store, folder, rows, count);
    if (!status)
        status = shards_map(store);
    for (int64_t i = 0; !status && i < store->shard_count; i++)
        status = shard_match(store, i);
    for (int64_t i = 0; !status && i < store->entry_count; i++)
        if (!store->entries[i].found)
            status = ith_fail(store->context, ITH_ERR_FORMAT, "%s: tensor '%s' is missing, which %s places there",
                              store->shards[store->entries[i].shard].path,
                              ith_quote(store->entries[i].tensor.name).text, store->path);
    ith_free(store->context, rows);
    ith_json_close(&index);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------- */

/* Chooses between the single file and the index of shards. Stores its path in store->path; *sharded becomes true for
 * the index. */
static ith_status choose(ith_store *store, const char *folder, const char *stem, ith_store_choice choice, bool *sharded)
{
    char *single = ith_format(store->context, "%s/%s.safetensors", folder, stem);
    char *index = ith_format(store->context, "%s/%s.safetensors.index.json", folder, stem);
    ith_status status = single && index ? ITH_OK : ITH_ERR_MEMORY;
    if (!status) {
        bool has_single = access(ith_lent_path(store->context, single), F_OK) == 0;
        bool has_index = access(ith_lent_path(store->context, index), F_OK) == 0;
        *sharded = has_index && (choice == ITH_STORE_INDEX_FIRST || !has_single);
        if (has_single && has_index)
            ith_log(store->context, ITH_LOG_INFO, "%s and %s are both there: the %s is taken", single, index,
                    *sharded ? "index" : "single file");
        if (!has_single && !has_index)
            status = ith_fail(store->context, ITH_ERR_IO, "no weights: neither %s nor %s.index.json is there", single,
                              single);
        store->path = *sharded ? index : single;
        ith_free(store->context, *sharded ? single : index);
        return status;
    }
    ith_free(store->context, single);
    ith_free(store->context, index);
    return status;
}

ith_status ith_store_open(ith_context *context, const char *folder, const char *stem, ith_store_choice choice,
                          ith_store **out)
{
    *out = NULL;
    ith_store *store = ith_alloc_zero(context, 1, sizeof *store, "a model component");
    if (!store)
        return ITH_ERR_MEMORY;
    store->context = ith_context_hold(context);
    bool sharded = false;
    ith_status status = choose(store, folder, stem, choice, &sharded);
    if (!status)
        status = sharded ? open_shards(store, folder) : open_single(store);
    if (status)
        ith_store_close(&store);
    *out = store;
    return status;
}

ith_status ith_store_open_random(ith_context *context, ith_dtype type, ith_store **out)
{
    *out = ith_alloc_zero(context, 1, sizeof **out, "a model component");
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->context = ith_context_hold(context);
    ith_status status = ith_random_tensors_create(context, type, &(*out)->random);
    if (status)
        ith_store_close(out);
    return status;
}

int64_t ith_store_random_bytes(const ith_store *store)
{
    return store->random ? (int64_t)sizeof *store + ITH_ALLOC_HEADER + ith_random_tensors_bytes(store->random) : 0;
}

void ith_store_close(ith_store **store)
{
    if (!store || !*store)
        return;
    ith_context *context = (*store)->context;
    for (int64_t i = 0; i < (*store)->entry_count; i++)
        ith_free(context, (*store)->entries[i].copy);
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

bool ith_store_has(const ith_store *store, const char *name)
{
    return find(store, name) != NULL;
}

/* Whether a tensor has exactly this shape. */
static bool has_shape(const ith_tensor *tensor, int dims, const int64_t *shape)
{
    bool same = tensor->dims == dims;
    for (int i = 0; same && i < dims; i++)
        same = tensor->shape[i] == shape[i];
    return same;
}

/* Finds the tensor `name`, and checks that its type is one for weights (F32, F16 or BF16) and that it has the given
 * shape. */
static ith_status look_up(ith_context *context, ith_store *store, const char *name, int dims, const int64_t *shape,
                          store_entry **out)
{
    store_entry *entry = find(store, name);
    if (!entry)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: tensor '%s' is missing", store->path, name);
    const ith_tensor *tensor = &entry->tensor;
    const char *path = store->shards[entry->shard].path;
    if (tensor->dtype != ITH_F32 && tensor->dtype != ITH_F16 && tensor->dtype != ITH_BF16)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: tensor '%s' is of type %s; weights must be F32, F16 or BF16",
                        path, name, ith_tensor_type_name(tensor->dtype));
    if (!has_shape(tensor, dims, shape))
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
    store_entry *entry = NULL;
    ith_status status = look_up(context, store, name, dims, shape, &entry);
    if (status)
        return status;
    ith_tensor *tensor = &entry->tensor;
    entry->taken = true;
    if (!out)
        return ITH_OK;
    if ((uintptr_t)tensor->data % (uintptr_t)ith_dtype_bytes(tensor->dtype) != 0) {
        entry->copy = ith_alloc(context, tensor->bytes, 1, name);
        if (!entry->copy)
            return ITH_ERR_MEMORY;
        if ((status =
                 ith_mapping_copy(context, ith_store_file_of(store, tensor), entry->copy, tensor->data, tensor->bytes)))
            return status;
        tensor->data = entry->copy;
    }
    *out = tensor;
    return ITH_OK;
}

const char *ith_store_file_of(const ith_store *store, const ith_tensor *tensor)
{
    return store->random ? "the random weights" : store->shards[find(store, tensor->name)->shard].path;
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
    store_entry *entry = tensor && !store->random ? find(store, tensor->name) : NULL;
    if (!entry)
        return;
    const ith_tensor *origin = ith_tensor_file_find(store->shards[entry->shard].file, tensor->name);
    ith_free(store->context, entry->copy);
    entry->copy = NULL;
    entry->tensor.data = origin->data;
    use_bytes(store, origin->bytes);
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

#define HASHED_BYTES 64 /* ith_store_hash reads at most this many bytes of a tensor */

ith_status ith_store_hash(ith_context *context, const ith_store *store, uint64_t *out)
{
    uint64_t hash = 0;
    for (int64_t i = 0; i < store->entry_count; i++) {
        const ith_tensor *t = &store->entries[i].tensor;
        int64_t bytes = ith_min64(t->bytes, HASHED_BYTES), numbers[2] = {t->dtype, t->bytes};
        char some[HASHED_BYTES];
        ith_status status = ith_mapping_copy(context, ith_store_file_of(store, t), some,
                                             (const char *)t->data + (t->bytes - bytes) / 2, bytes);
        if (status)
            return status;
        hash = ith_hash(hash + 1, t->name, (int64_t)strlen(t->name));
        hash = ith_hash(hash, numbers, sizeof numbers);
        hash = ith_hash(hash, t->shape, t->dims * (int64_t)sizeof *t->shape);
        if (bytes)
            hash = ith_hash(hash, some, bytes);
    }
    *out = hash;
    return ITH_OK;
}

ith_status ith_store_check_all_taken(ith_context *context, const ith_store *store)
{
    const store_entry *first = NULL;
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
                    store->shards[first->shard].path, ith_quote(first->tensor.name).text, (long long)count);
}
