/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and checks the weight files of every component before a run begins, and computes the hash of a model. */
#include "../../base/context.h"
#include "../../base/count.h"
#include "../../base/hash.h"
#include "../../base/open_file.h"
#include "../source/weight_files.h"
#include "../text/tokenizer.h"
#include "model.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool ith_model_has_part(const ith_model *model, ith_part part)
{
    return part == ITH_PART_DIT_2    ? model->info.experts == 2
           : part == ITH_PART_VISION ? model->dit[0].image_dim > 0
                                     : true;
}

ith_status ith_model_open_part(ith_context *context, const ith_model *model, ith_part part, ith_store **out)
{
    return ith_source_open(context, &model->sources, part, out);
}

/* The LoRA files of a component; NULL: there are none. */
static ith_lora *lora_of(const ith_model *model, ith_part part)
{
    return part == ITH_PART_DIT ? model->loras[0] : part == ITH_PART_DIT_2 ? model->loras[1] : NULL;
}

static ith_status check_part(ith_context *context, const ith_model *model, ith_part part, ith_store *store)
{
    ith_status status = ITH_OK;
    switch (part) {
    case ITH_PART_TEXT: return ith_text_encoder_check(context, &model->text, store);
    case ITH_PART_VISION: return ith_vision_encoder_check(context, &model->vision, store);
    case ITH_PART_VAE:
        if (model->info.image_use == ITH_IMAGE_NEEDED &&
            (status = ith_vae_check(context, &model->vae, ITH_VAE_ENCODER, store)))
            return status;
        return ith_vae_check(context, &model->vae, ITH_VAE_DECODER, store);
    default: return ith_dit_check(context, &model->dit[part == ITH_PART_DIT_2], store, lora_of(model, part));
    }
}

/* Opens and checks the weight files of a component. Files that were open before are closed. */
static ith_status open_part(ith_context *context, ith_model *model, ith_part part)
{
    ith_store *store = NULL;
    ith_store_close(&model->files[part]);
    ith_status status = ith_model_open_part(context, model, part, &store);
    if (!status)
        status = check_part(context, model, part, store);
    if (status)
        ith_store_close(&store);
    model->files[part] = store;
    return status;
}

ith_status ith_model_check_weights(ith_context *context, ith_model *model)
{
    ith_status status = ITH_OK;
    for (ith_part part = 0; part < ITH_PARTS && !status; part++) {
        status = ith_lora_check_unchanged(context, lora_of(model, part));
        if (!status && ith_model_has_part(model, part) &&
            (!model->files[part] || ith_store_check_unchanged(context, model->files[part])))
            status = open_part(context, model, part);
    }
    return status;
}

ith_status ith_model_check_unchanged(ith_context *context, const ith_model *model, ith_part part)
{
    ith_status status = ith_lora_check_unchanged(context, lora_of(model, part));
    return !status && model->files[part] ? ith_store_check_unchanged(context, model->files[part]) : status;
}

ith_status ith_model_open_unchanged(ith_context *context, const ith_model *model, ith_part part, ith_store **out)
{
    *out = NULL;
    ith_status status = ith_model_check_unchanged(context, model, part);
    return status ? status : ith_model_open_part(context, model, part, out);
}

ith_status ith_model_list_bytes(ith_context *context, const ith_model *model, ith_part part, int64_t *bytes)
{
    ith_store *store = NULL;
    *bytes = 0;
    if (!model->folder || !ith_model_has_part(model, part)) {
        *bytes = model->lists[part];
        return ITH_OK;
    }
    ith_status status = model->files[part] ? ITH_OK : ith_model_open_part(context, model, part, &store);
    if (!status)
        *bytes = ith_store_held_bytes(store ? store : model->files[part]);
    ith_store_close(&store);
    const bool refused = status == ITH_ERR_IO || status == ITH_ERR_FORMAT || status == ITH_ERR_UNSUPPORTED;
    return refused ? ITH_OK : status;
}

int64_t ith_model_file_bytes(const ith_model *model)
{
    int64_t bytes = 0;
    for (ith_part part = 0; part < ITH_PARTS; part++)
        bytes += ith_lora_bytes(lora_of(model, part)) + (model->files[part] ? ith_store_bytes(model->files[part]) : 0);
    return bytes;
}

/* ---- Comparing checkpoints ------------------------------------------------------------------------------------- */

#define PROCESSOR "image_processor/preprocessor_config.json"

/* Reads up to `room` bytes, fewer only at the end of the file. Returns their number; -1 with the reason in errno. */
static int64_t read_piece(int file, char *piece, int64_t room)
{
    int64_t bytes = 0;
    ssize_t got = 1;
    while (bytes < room && (got = read(file, piece + bytes, (size_t)(room - bytes))) > 0)
        bytes += got;
    return got < 0 ? -1 : bytes;
}

/* Hashes the bytes of a file into *hash, in pieces of one size, on which the hash depends. */
static ith_status hash_file(ith_context *context, const char *path, uint64_t *hash)
{
    char piece[4096];
    int64_t bytes, got;
    int file;
    ith_status status = ith_open_file(context, path, &file, &bytes);
    if (status)
        return status;
    while ((got = read_piece(file, piece, sizeof piece)) > 0)
        *hash = ith_hash(*hash, piece, got);
    if (got < 0)
        status = ith_fail(context, ITH_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    close(file);
    return status;
}

/* Hashes the file folder/name into *hash. */
static ith_status hash_config(ith_context *context, const char *folder, const char *name, uint64_t *hash)
{
    char *path = ith_format(context, "%s/%s", folder, name);
    ith_status status = path ? hash_file(context, path, hash) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

/* Hashes the tokenizer's file, or the files of its folder, into *hash, unless the weight files hold it. */
static ith_status hash_tokenizer(ith_context *context, const char *path, uint64_t *hash)
{
    static const char *const names[] = {ITH_TOKENIZER_MODEL, ITH_TOKENIZER_JSON};
    ith_status status = ITH_OK;
    int found = 0;
    for (int i = 0; path && i < ITH_COUNT(names) && !status; i++)
        if (ith_has_file(context, path, names[i])) {
            status = hash_config(context, path, names[i], hash);
            found++;
        }
    return path && !found ? hash_file(context, path, hash) : status;
}

/* Hashes the configuration and the weight files of one component into *hash. */
static ith_status hash_part(ith_context *context, const ith_model *model, ith_part part, uint64_t *hash)
{
    const ith_source *source = &model->sources.parts[part];
    uint64_t parts[2] = {0, 0}; /* of the weight files, and of the LoRA files */
    ith_status status = source->folder ? hash_config(context, source->folder, "config.json", hash) : ITH_OK;
    if (!status)
        status = ith_store_hash(context, model->files[part], &parts[0]);
    if (!status)
        status = ith_lora_hash(context, lora_of(model, part), &parts[1]);
    *hash = ith_hash(*hash, parts, sizeof parts);
    return status;
}

ith_status ith_model_hash_added(ith_context *context, const ith_model *model, uint64_t *hash)
{
    ith_status status = ITH_OK;
    *hash = 1;
    for (ith_part part = 0; part < ITH_PARTS && !status; part++) {
        uint64_t added = 0;
        if (ith_model_has_part(model, part) && !model->sources.parts[part].folder)
            status = hash_part(context, model, part, hash);
        else
            status = ith_lora_hash(context, lora_of(model, part), &added);
        *hash = ith_hash(*hash, &added, sizeof added);
    }
    return status;
}

ith_status ith_model_hash(ith_context *context, const ith_model *model, uint64_t *hash)
{
    const char *folder = model->sources.folder;
    *hash = 1;
    ith_status status = folder ? hash_config(context, folder, "model_index.json", hash) : ITH_OK;
    if (!status && folder)
        status = hash_config(context, folder, "scheduler/scheduler_config.json", hash);
    if (!status && folder && ith_model_has_part(model, ITH_PART_VISION) && ith_has_file(context, folder, PROCESSOR))
        status = hash_config(context, folder, PROCESSOR, hash);
    if (!status)
        status = hash_tokenizer(context, model->sources.tokenizer, hash);
    for (ith_part part = 0; part < ITH_PARTS && !status; part++)
        if (ith_model_has_part(model, part))
            status = hash_part(context, model, part, hash);
    return status;
}
