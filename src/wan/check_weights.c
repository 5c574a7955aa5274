/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the weight files of every component before a run begins, and computes the hash of a checkpoint. */
#include "../base/context.h"
#include "../base/hash.h"
#include "../base/open_file.h"
#include "../files/store.h"
#include "model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef ith_status (*check_fn)(ith_context *context, const char *folder);

/* Checks the autoencoder's weights by loading them: this checks all tensors, and takes little memory, because large
 * weights stay in the mapped file. */
static ith_status check_vae(ith_context *context, const char *folder)
{
    ith_vae *vae = NULL;
    ith_status status = ith_vae_load(context, folder, ith_operands_f32(), &vae);
    ith_vae_free(context, &vae);
    return status;
}

static ith_status check_part(ith_context *context, const ith_model *model, const char *part, check_fn check)
{
    char *path = ith_model_path(context, model, part);
    ith_status status = path ? check(context, path) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

ith_status ith_model_check_weights(ith_context *context, const ith_model *model)
{
    ith_status status = check_part(context, model, "text_encoder", ith_text_encoder_check);
    if (!status)
        status = check_part(context, model, "transformer", ith_dit_check);
    if (!status && model->info.experts == 2)
        status = check_part(context, model, "transformer_2", ith_dit_check);
    if (!status)
        status = check_part(context, model, "vae", check_vae);
    return status;
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

/* Hashes the weight files of one component into *hash. transformers calls the files of the text encoder "model",
 * diffusers calls all others "diffusion_pytorch_model". */
static ith_status hash_weights(ith_context *context, const ith_model *model, const char *part, uint64_t *hash)
{
    bool text = !strcmp(part, "text_encoder");
    char *path = ith_model_path(context, model, part);
    ith_store *store = NULL;
    ith_status status = !path ? ITH_ERR_MEMORY
                        : text
                            ? ith_store_open(context, path, "model", ITH_STORE_FILE_FIRST, &store)
                            : ith_store_open(context, path, "diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, &store);
    uint64_t own = 0;
    if (!status)
        status = ith_store_hash(context, store, &own);
    *hash ^= own;
    ith_store_close(&store);
    ith_free(context, path);
    return status;
}

ith_status ith_model_hash(ith_context *context, const ith_model *model, uint64_t *hash)
{
    static const char *const parts[] = {"text_encoder", "vae", "transformer", "transformer_2"};
    const int count = model->info.experts == 2 ? 4 : 3;
    *hash = 1;
    ith_status status = hash_config(context, model, "model_index.json", hash);
    if (!status)
        status = hash_config(context, model, "scheduler/scheduler_config.json", hash);
    if (!status)
        status = hash_config(context, model, "tokenizer/spiece.model", hash);
    for (int i = 0; i < count && !status; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/config.json", parts[i]);
        status = hash_config(context, model, name, hash);
        if (!status)
            status = hash_weights(context, model, parts[i], hash);
    }
    return status;
}
