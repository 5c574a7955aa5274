/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and checks the weight files of every component before a run begins, and computes the hash of a checkpoint. */
#include "../base/context.h"
#include "../base/hash.h"
#include "../base/open_file.h"
#include "model.h"

#include <stdio.h>
#include <unistd.h>

const char *ith_part_name(ith_part part)
{
    static const char *const names[] = {"text_encoder", "transformer", "transformer_2", "vae"};
    return names[part];
}

static bool has_part(const ith_model *model, ith_part part)
{
    return part != ITH_PART_DIT_2 || model->info.experts == 2;
}

/* Opens and checks the weight files of a component. Files that were open before are closed. */
static ith_status open_part(ith_context *context, ith_model *model, ith_part part)
{
    static ith_status (*const check[])(ith_context *, const char *, ith_store **) = {
        ith_text_encoder_check, ith_dit_check, ith_dit_check, ith_vae_check};
    char *path = ith_model_path(context, model, ith_part_name(part));
    ith_store_close(&model->files[part]);
    ith_status status = path ? check[part](context, path, &model->files[part]) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

ith_status ith_model_check_weights(ith_context *context, ith_model *model)
{
    ith_status status = ITH_OK;
    for (ith_part part = 0; part < ITH_PARTS && !status; part++)
        if (has_part(model, part) && (!model->files[part] || ith_store_check_unchanged(context, model->files[part])))
            status = open_part(context, model, part);
    return status;
}

ith_status ith_model_check_unchanged(ith_context *context, const ith_model *model, ith_part part)
{
    return model->files[part] ? ith_store_check_unchanged(context, model->files[part]) : ITH_OK;
}

int64_t ith_model_file_bytes(const ith_model *model)
{
    int64_t bytes = 0;
    for (ith_part part = 0; part < ITH_PARTS; part++)
        bytes += model->files[part] ? ith_store_bytes(model->files[part]) : 0;
    return bytes;
}

/* ---- Comparing checkpoints ------------------------------------------------------------------------------------- */

/* Hashes the bytes of a file into *hash. */
static ith_status hash_file(ith_context *context, const char *path, uint64_t *hash)
{
    char piece[4096];
    int64_t bytes;
    int file;
    ith_status status = ith_open_file(context, path, &file, &bytes);
    if (status)
        return status;
    for (ssize_t got; (got = read(file, piece, sizeof piece)) > 0;)
        *hash = ith_hash(*hash, piece, got);
    close(file);
    return ITH_OK;
}

static ith_status hash_config(ith_context *context, const ith_model *model, const char *name, uint64_t *hash)
{
    char *path = ith_model_path(context, model, name);
    ith_status status = path ? hash_file(context, path, hash) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

/* Hashes the configuration and the weight files of one component into *hash. */
static ith_status hash_part(ith_context *context, const ith_model *model, ith_part part, uint64_t *hash)
{
    char name[64];
    uint64_t own = 0;
    snprintf(name, sizeof name, "%s/config.json", ith_part_name(part));
    ith_status status = hash_config(context, model, name, hash);
    if (!status)
        status = ith_store_hash(context, model->files[part], &own);
    *hash ^= own;
    return status;
}

ith_status ith_model_hash(ith_context *context, const ith_model *model, uint64_t *hash)
{
    *hash = 1;
    ith_status status = hash_config(context, model, "model_index.json", hash);
    if (!status)
        status = hash_config(context, model, "scheduler/scheduler_config.json", hash);
    if (!status)
        status = hash_config(context, model, "tokenizer/spiece.model", hash);
    for (ith_part part = 0; part < ITH_PARTS && !status; part++)
        if (has_part(model, part))
            status = hash_part(context, model, part, hash);
    return status;
}
