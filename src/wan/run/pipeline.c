/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer, the check and the cancellation of an open pipeline. */
#include "pipeline.h"

#include "../../base/context.h"
#include "../../files/mapping.h"

#include <string.h>

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

/* Loads the tokenizer of a pipeline. A checkpoint may lack it. */
static ith_status load_tokenizer(ith_context *context, const ith_sources *sources, ith_tokenizer **out)
{
    if (!sources->tokenizer)
        return load_embedded(context, &sources->parts[ITH_PART_TEXT], out);
    const ith_status status = ith_tokenizer_load(context, sources->tokenizer, out);
    if (status != ITH_ERR_IO || sources->tokenizer_named || ith_tokenizer_is_in(context, sources->tokenizer))
        return status;
    return ith_fail_in(context, status, "tokenizer is needed (spiece.model of google/umt5-xxl can be it)");
}

/* While the tokenizer is read, the caller's should_stop may call functions of the pipeline that also read it. The
 * pipeline keeps the tokenizer that is complete first. */
ith_status ith_pipeline_need_tokenizer(ith_pipeline *pipeline, ith_context *context)
{
    if (pipeline->tokenizer)
        return ITH_OK;
    const ith_sources *sources = &pipeline->model->sources;
    const char *path = sources->tokenizer ? sources->tokenizer : sources->parts[ITH_PART_TEXT].paths[0];
    ith_tokenizer *tokenizer = NULL;
    ith_status status = load_tokenizer(context, sources, &tokenizer);
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

ith_status ith_pipeline_check_in(ith_pipeline *pipeline, ith_context *context)
{
    ith_status status = ith_pipeline_need_tokenizer(pipeline, context);
    return status ? status : ith_model_check_weights(context, pipeline->model);
}

void ith_pipeline_end_cancellation(ith_pipeline *pipeline)
{
    if (atomic_exchange(&pipeline->cancelled, false))
        ith_context_end_interruption(pipeline->context);
}
