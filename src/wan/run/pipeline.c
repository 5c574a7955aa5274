/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes pipelines: the configuration of a checkpoint, its tokenizer, and the data that the ranks of a run
 * share. */
#include "pipeline.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/hash.h"
#include "../../base/sized.h"
#include "../../base/version.h"
#include "../../files/mapping.h"
#include "../model/lend.h"
#include "prompts.h"

#include <string.h>
#include <sys/random.h>

/* Makes the tokenizer from a tensor in the text encoder's files that holds a spiece.model, as Comfy's files have it. */
static ith_status make_embedded(ith_context *context, const ith_source *source, const ith_store *raw,
                                ith_tokenizer **out)
{
    static const char end[] = "spiece_model";
    const ith_tensor *tensor;
    for (int64_t i = 0; (tensor = ith_store_at(raw, i)); i++) {
        const size_t length = strlen(tensor->name);
        if (length < sizeof end - 1 || strcmp(tensor->name + length - sizeof end + 1, end) != 0)
            continue;
        void *copy = ith_alloc(context, tensor->bytes, 1, "a tokenizer");
        if (!copy)
            return ITH_ERR_MEMORY;
        ith_status status = ith_mapping_copy(context, source->paths[0], copy, tensor->data, tensor->bytes);
        if (!status)
            status = ith_tokenizer_make(context, source->paths[0], copy, tensor->bytes, out);
        ith_free(context, copy);
        return status;
    }
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "tokenizer is needed: %s has none in it or beside it; spiece.model of google/umt5-xxl can be it",
                    source->paths[0]);
}

/* Loads the tokenizer in the text encoder's files. */
static ith_status load_embedded(ith_context *context, const ith_source *source, ith_tokenizer **out)
{
    ith_store *raw = NULL;
    const char *dot = strrchr(source->paths[0], '.');
    if (dot && !strcmp(dot, ".gguf"))
        return ith_tokenizer_load(context, source->paths[0], out);
    ith_status status = ith_store_open_files(context, (const char *const *)source->paths, source->count, NULL, &raw);
    if (!status)
        status = make_embedded(context, source, raw, out);
    ith_store_close(&raw);
    return status;
}

/* While the tokenizer is read, the caller's should_stop may call functions of the pipeline that read it, too: then the
 * one that was complete first stays. */
ith_status ith_pipeline_need_tokenizer(ith_pipeline *pipeline, ith_context *context)
{
    if (pipeline->tokenizer)
        return ITH_OK;
    const ith_sources *sources = &pipeline->model->sources;
    const ith_source *text = &sources->parts[ITH_PART_TEXT];
    const char *path = sources->tokenizer ? sources->tokenizer : text->paths[0];
    ith_tokenizer *tokenizer = NULL;
    ith_status status =
        sources->tokenizer ? ith_tokenizer_load(context, path, &tokenizer) : load_embedded(context, text, &tokenizer);
    if (status)
        return status;
    const int64_t pieces = ith_tokenizer_vocab(tokenizer), vocab = pipeline->model->text.vocab;
    if (pieces <= vocab && !pipeline->tokenizer) {
        pipeline->tokenizer = tokenizer;
        return ITH_OK;
    }
    ith_tokenizer_free(context, &tokenizer);
    if (pieces <= vocab)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_FORMAT,
                    "%s: the tokenizer's %lld pieces are more than the text encoder's vocabulary of %lld", path,
                    (long long)pieces, (long long)vocab);
}

/* Checks that libithaca and libithaca_wan have the same version: both are compiled with the members of ith_context,
 * which may differ between versions. */
static ith_status check_library(ith_context *context)
{
    if (!strcmp(ith_version(), ITH_VERSION_TEXT))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "libithaca_wan is version %s and libithaca, which it uses, %s: install both of one version",
                    ITH_VERSION_TEXT, ith_version());
}

/* Asks the kernel for a random number. If the kernel has none yet, hashes the time and the caller's address instead. */
uint64_t ith_draw_number(const void *address)
{
    const struct {
        double now;
        const void *address;
    } seed = {ith_clock_seconds(), address};
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0)
        number = ith_hash(1, &seed, sizeof seed);
    return number;
}

static ith_status open_pipeline(ith_context *context, const ith_model_files *files, ith_pipeline **out)
{
    ith_pipeline *pipeline = ith_alloc_zero(context, 1, sizeof *pipeline, "a pipeline");
    if (!pipeline)
        return ITH_ERR_MEMORY;
    pipeline->context = ith_context_hold(context);
    pipeline->number = ith_draw_number(pipeline);
    pipeline->lent = files->folder && ith_model_is_lent(context, files->folder);
    pipeline->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ith_status status = ith_model_read(context, files, &pipeline->model);
    if (status)
        ith_pipeline_close(&pipeline);
    *out = pipeline;
    return status;
}

ith_status ith_pipeline_open(ith_context *context, const char *model_folder, ith_pipeline **out)
{
    ith_model_files files = ITH_MODEL_FILES_INIT;
    if (out)
        *out = NULL;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, model_folder, "model_folder");
    files.folder = model_folder;
    return status ? status : ith_pipeline_open_files(context, &files, out);
}

ith_status ith_pipeline_open_files(ith_context *context, const ith_model_files *files, ith_pipeline **out)
{
    ith_model_files full = ITH_MODEL_FILES_INIT;
    if (out)
        *out = NULL;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, files, "files");
    if (!status)
        status = ith_need(context, out, "out");
    if (!status)
        status = check_library(context);
    if (!status)
        status = ITH_SIZED_READ(context, ith_model_files, ITH_MODEL_FILES_INIT, files, &full);
    return status ? status : open_pipeline(context, &full, out);
}

void ith_pipeline_close(ith_pipeline **pipeline)
{
    if (!pipeline || !*pipeline)
        return;
    ith_context *context = (*pipeline)->context;
    ith_pipeline_end_cancellation(*pipeline);
    for (int64_t i = 0; i < (*pipeline)->resolved_count; i++)
        ith_saved_run_close(context, &(*pipeline)->resolved[i]);
    ith_free(context, (*pipeline)->resolved);
    ith_prompts_free(*pipeline);
    ith_tokenizer_free(context, &(*pipeline)->tokenizer);
    ith_model_free(context, &(*pipeline)->model);
    pthread_mutex_destroy(&(*pipeline)->lock);
    ith_free(context, *pipeline);
    ith_context_release(context);
    *pipeline = NULL;
}

ith_status ith_pipeline_info(const ith_pipeline *pipeline, ith_model_info *info)
{
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    return ITH_SIZED_FILL(pipeline->context, ith_model_info, ITH_MODEL_INFO_INIT, info, &pipeline->model->info);
}

ith_status ith_pipeline_check_in(ith_pipeline *pipeline, ith_context *context)
{
    ith_status status = ith_pipeline_need_tokenizer(pipeline, context);
    return status ? status : ith_model_check_weights(context, pipeline->model);
}

ith_status ith_pipeline_check(ith_pipeline *pipeline)
{
    return pipeline ? ith_pipeline_check_in(pipeline, pipeline->context) : ith_need(NULL, pipeline, "pipeline");
}

ith_status ith_pipeline_tokenize(ith_pipeline *pipeline, const char *text, int32_t *ids, int64_t *count)
{
    if (count)
        *count = 0;
    ith_status status = ith_need(NULL, pipeline, "pipeline");
    if (!status)
        status = ith_need(pipeline->context, text, "text");
    if (!status)
        status = ith_need(pipeline->context, ids, "ids");
    if (!status)
        status = ith_need(pipeline->context, count, "count");
    if (!status)
        status = ith_pipeline_need_tokenizer(pipeline, pipeline->context);
    return status ? status : ith_tokenizer_encode(pipeline->context, pipeline->tokenizer, text, ids, count);
}

void ith_pipeline_cancel(ith_pipeline *pipeline)
{
    if (pipeline && !atomic_exchange(&pipeline->cancelled, true))
        ith_context_interrupt(pipeline->context);
}

void ith_pipeline_end_cancellation(ith_pipeline *pipeline)
{
    if (atomic_exchange(&pipeline->cancelled, false))
        ith_context_end_interruption(pipeline->context);
}

bool ith_shards_weights(const ith_generate_options *options, const ith_team *team)
{
    return options->shard_weights && (team->hosts > 1 || team->lends);
}
