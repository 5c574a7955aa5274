/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the files of a model component (store.h), and makes the list of its tensors. The index of shards has the format
 * of transformers: {"weight_map": {TENSOR: FILE, ...}}. */
#include "../base/lent_files.h"
#include "json.h"
#include "quote.h"
#include "store_parts.h"
#include "suffix.h"
#include "tensor.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Files without an index ------------------------------------------------------------------------------------ */

/* Opens every file in store->shards, whose paths are set. Stops if the context is interrupted. */
static ith_status open_shards(ith_store *store)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < store->shard_count && !status; i++)
        if (!(status = ith_context_check(store->context)))
            status = ith_tensor_file_open(store->context, store->shards[i].path, &store->shards[i].file);
    return status;
}

/* Opens files, and makes an entry for each of their tensors. */
static ith_status open_list(ith_store *store, const char *const *paths, int64_t count)
{
    ith_context *context = store->context;
    int64_t tensors = 0;
    if (!(store->shards = ith_alloc_zero(context, count, sizeof *store->shards, "a list of weight files")))
        return ITH_ERR_MEMORY;
    for (; store->shard_count < count; store->shard_count++)
        if (!(store->shards[store->shard_count].path = ith_strdup(context, paths[store->shard_count])))
            return ITH_ERR_MEMORY;
    ith_status status = open_shards(store);
    if (status)
        return status;
    for (int64_t i = 0; i < count; i++)
        tensors += ith_tensor_file_count(store->shards[i].file);
    if (!(store->entries = ith_alloc_zero(context, tensors, sizeof *store->entries, "a list of weights")))
        return ITH_ERR_MEMORY;
    for (int64_t shard = 0; shard < count; shard++)
        for (int64_t i = 0; i < ith_tensor_file_count(store->shards[shard].file); i++) {
            const ith_tensor *tensor = ith_tensor_file_at(store->shards[shard].file, i);
            store->entries[store->entry_count++] =
                (ith_store_entry){.tensor = *tensor, .origin = tensor, .shard = shard};
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
 * ith_free. Its strings belong to `index`. */
static ith_status read_rows(ith_store *store, const ith_json *index, index_row **rows, int64_t *count)
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

/* Makes store->entries and store->shards from the rows of the index. Opens no file. */
static ith_status list_rows(ith_store *store, const index_row *rows, int64_t count)
{
    ith_context *context = store->context;
    const char *slash = strrchr(store->path, '/');
    const int folder = slash ? (int)(slash + 1 - store->path) : 0;
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
            store->shards[store->shard_count].path = ith_format(context, "%.*s%s", folder, store->path, rows[i].shard);
            if (!store->shards[store->shard_count++].path)
                return ITH_ERR_MEMORY;
        }
        store->entries[i].tensor.name = rows[i].name;
        store->entries[i].shard = store->shard_count - 1;
    }
    qsort(store->entries, (size_t)count, sizeof *store->entries, ith_store_entry_by_name);
    return ITH_OK;
}

/* Fills in the entries of the tensors that a file (shard) contains. A tensor that the index places in another file, or
 * does not name, is an error. */
static ith_status fill_entries(ith_store *store, int64_t index)
{
    const ith_store_shard *shard = &store->shards[index];
    for (int64_t i = 0; i < ith_tensor_file_count(shard->file); i++) {
        const ith_tensor *tensor = ith_tensor_file_at(shard->file, i);
        ith_store_entry *entry = ith_store_find(store, tensor->name);
        if (!entry)
            return ith_fail(store->context, ITH_ERR_FORMAT, "%s: holds tensor '%s', which %s does not name",
                            shard->path, ith_quote(tensor->name).text, store->path);
        if (entry->shard != index)
            return ith_fail(store->context, ITH_ERR_FORMAT, "%s: holds tensor '%s', which %s places in %s", shard->path,
                            ith_quote(tensor->name).text, store->path, store->shards[entry->shard].path);
        entry->tensor = *tensor;
        entry->origin = tensor;
    }
    return ITH_OK;
}

/* Reads the index and opens every file (shard) that it names. */
static ith_status open_index(ith_store *store)
{
    ith_json *index = NULL;
    index_row *rows = NULL;
    int64_t count = 0;
    ith_status status = ith_json_read(store->context, store->path, &index);
    if (!status)
        status = read_rows(store, index, &rows, &count);
    if (!status)
        status = list_rows(store, rows, count);
    if (!status && (status = open_shards(store)))
        status = ith_fail_in(store->context, status, "a shard that %s names", store->path);
    for (int64_t i = 0; !status && i < store->shard_count; i++)
        status = fill_entries(store, i);
    for (int64_t i = 0; !status && i < store->entry_count; i++)
        if (!store->entries[i].origin)
            status = ith_fail(store->context, ITH_ERR_FORMAT, "%s: tensor '%s' is missing, which %s places there",
                              store->shards[store->entries[i].shard].path,
                              ith_quote(store->entries[i].tensor.name).text, store->path);
    ith_free(store->context, rows);
    ith_json_close(&index);
    return status;
}

/* ---- Canonical names ------------------------------------------------------------------------------------------- */

/* Gives an entry its canonical name. *ignored becomes true if it has none. */
static ith_status name_entry(const ith_store *store, const ith_store_names *names, ith_store_entry *entry,
                             bool *ignored)
{
    char space[ITH_STORE_NAME_BYTES];
    const char *name = names->canonical(names->user, entry->origin->name, space);
    *ignored = !name;
    if (!name || !strcmp(name, entry->origin->name))
        return ITH_OK;
    if (!(entry->name = ith_strdup(store->context, name)))
        return ITH_ERR_MEMORY;
    entry->tensor.name = entry->name;
    return ITH_OK;
}

/* Gives all entries their canonical names, and removes the entries that have none. */
static ith_status name_entries(ith_store *store, const ith_store_names *names)
{
    int64_t kept = 0;
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < store->entry_count && !status; i++) {
        bool ignored = false;
        status = name_entry(store, names, &store->entries[i], &ignored);
        const ith_store_entry entry = store->entries[i];
        store->entries[i] = (ith_store_entry){.shard = 0};
        if (!ignored || status) /* after a failure ith_store_close frees the entry */
            store->entries[kept++] = entry;
    }
    if (!status)
        store->entry_count = kept;
    return status;
}

/* Orders the entries by name. Two tensors of the same name are an error. */
static ith_status order_entries(ith_store *store)
{
    qsort(store->entries, (size_t)store->entry_count, sizeof *store->entries, ith_store_entry_by_name);
    for (int64_t i = 1; i < store->entry_count; i++) {
        const ith_store_entry *a = &store->entries[i - 1], *b = &store->entries[i];
        if (!strcmp(a->tensor.name, b->tensor.name))
            return ith_fail(store->context, ITH_ERR_FORMAT,
                            "%s: tensor '%s' is the same weight as tensor '%s' of %s: these files are not parts of one "
                            "model",
                            store->shards[b->shard].path, ith_quote(b->origin->name).text,
                            ith_quote(a->origin->name).text, store->shards[a->shard].path);
    }
    return ITH_OK;
}

/* ---- The whole ------------------------------------------------------------------------------------------------- */

/* Whether a folder has weight files of a variant, "STEM.fp16.safetensors" or its shards; *variant becomes "fp16". */
static bool find_variant(const char *folder, const char *stem, char variant[NAME_MAX + 1])
{
    const size_t length = strlen(stem);
    bool found = false;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && !found && (entry = readdir(entries));) {
        const char *rest = entry->d_name + length;
        found = !strncmp(entry->d_name, stem, length) && *rest == '.' && ith_suffix(rest, ".safetensors");
        if (found)
            snprintf(variant, NAME_MAX + 1, "%.*s", (int)strcspn(rest + 1, ".-"), rest + 1);
    }
    if (entries)
        closedir(entries);
    return found;
}

/* Fails because neither the single file nor the index is there. */
static ith_status fail_missing(ith_context *context, const char *folder, const char *stem, const char *single)
{
    char variant[NAME_MAX + 1];
    if (find_variant(folder, stem, variant))
        return ith_fail(context, ITH_ERR_IO,
                        "no weights: there is no %s, but files of the variant '%s': name this variant", single,
                        variant);
    return ith_fail(context, ITH_ERR_IO, "no weights: neither %s nor %s.index.json is there", single, single);
}

/* Chooses between the single file and the index of shards. Stores its path in store->path; *sharded becomes true for
 * the index. */
static ith_status choose(ith_store *store, const char *folder, const char *stem, ith_store_choice choice, bool *sharded)
{
    ith_context *context = store->context;
    char *single = ith_format(context, "%s/%s.safetensors", folder, stem);
    char *index = ith_format(context, "%s/%s.safetensors.index.json", folder, stem);
    if (!single || !index) {
        ith_free(context, single);
        ith_free(context, index);
        return ITH_ERR_MEMORY;
    }
    const bool has_single = access(ith_lent_path(context, single), F_OK) == 0;
    const bool has_index = access(ith_lent_path(context, index), F_OK) == 0;
    ith_status status = ITH_OK;
    *sharded = has_index && (choice == ITH_STORE_INDEX_FIRST || !has_single);
    if (has_single && has_index)
        ith_log(context, ITH_LOG_INFO, "%s and %s are both there: the %s is taken", single, index,
                *sharded ? "index" : "single file");
    if (!has_single && !has_index)
        status = fail_missing(context, folder, stem, single);
    store->path = *sharded ? index : single;
    ith_free(context, *sharded ? single : index);
    return status;
}

/* Opens the index, or otherwise the files, and makes the list of tensors. store->path names them in messages. */
static ith_status open_all(ith_store *store, bool has_index, const char *const *paths, int64_t count,
                           const ith_store_names *names)
{
    ith_status status = has_index ? open_index(store) : open_list(store, paths, count);
    if (!status && names)
        status = name_entries(store, names);
    if (!status)
        status = order_entries(store);
    return status ? status : ith_store_find_scales(store);
}

ith_status ith_store_open_as(ith_context *context, const char *folder, const char *stem, ith_store_choice choice,
                             const ith_store_names *names, ith_store **out)
{
    ith_store *store = NULL;
    bool sharded = false;
    *out = NULL;
    ith_status status = ith_store_create(context, &store);
    if (!status)
        status = choose(store, folder, stem, choice, &sharded);
    if (!status)
        status = open_all(store, sharded, (const char *const *)&store->path, 1, names);
    if (status)
        ith_store_close(&store);
    *out = store;
    return status;
}

ith_status ith_store_open(ith_context *context, const char *folder, const char *stem, ith_store_choice choice,
                          ith_store **out)
{
    return ith_store_open_as(context, folder, stem, choice, NULL, out);
}

/* Whether a file is an index of shards, by its name: "NAME.index.json" or "NAME.index.VARIANT.json". */
static bool is_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    return ith_suffix(path, ".json") && strstr(slash ? slash : path, ".index.");
}

ith_status ith_store_open_files(ith_context *context, const char *const *paths, int64_t count,
                                const ith_store_names *names, ith_store **out)
{
    *out = NULL;
    if (count < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a model component of %lld files; it has at least one",
                        (long long)count);
    ith_store *store = NULL;
    ith_status status = ith_store_create(context, &store);
    if (status)
        return status;
    store->path = count == 1 ? ith_strdup(context, paths[0])
                             : ith_format(context, "%s and %lld more", paths[0], (long long)count - 1);
    status = store->path ? open_all(store, count == 1 && is_index(paths[0]), paths, count, names) : ITH_ERR_MEMORY;
    if (status)
        ith_store_close(&store);
    *out = store;
    return status;
}
