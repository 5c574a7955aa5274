/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes pipelines: the configuration of a checkpoint, its tokenizer, and the data that the ranks of a run
 * share. */
#include "pipeline.h"

#include "../base/clock.h"
#include "../base/context.h"
#include "../base/hash.h"
#include "../base/sized.h"
#include "../base/version.h"
#include "lend.h"

#include <string.h>
#include <sys/random.h>

ith_status ith_pipeline_need_tokenizer(ith_pipeline *pipeline, ith_context *context)
{
    if (pipeline->tokenizer)
        return ITH_OK;
    char *path = ith_model_path(context, pipeline->model, "tokenizer");
    if (!path)
        return ITH_ERR_MEMORY;
    ith_status status = ith_tokenizer_load(context, path, &pipeline->tokenizer);
    ith_free(context, path);
    if (status || ith_tokenizer_vocab(pipeline->tokenizer) <= pipeline->model->text.vocab)
        return status;
    int64_t pieces = ith_tokenizer_vocab(pipeline->tokenizer);
    ith_tokenizer_free(context, &pipeline->tokenizer);
    return ith_fail(context, ITH_ERR_FORMAT,
                    "%s/tokenizer/spiece.model: %lld pieces are more than the text encoder's vocabulary of %lld",
                    pipeline->model->folder, (long long)pieces, (long long)pipeline->model->text.vocab);
}

/* Checks that libithaca and libithaca_wan have the same version: both are compiled with the members of ith_context,
 * which may differ between versions. */
static ith_status check_library(ith_context *context)
{
    if (!strcmp(ith_version(), ITH_VERSION_TEXT))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "libithaca_wan is version %s and libithaca, which it stands on, %s: install both of one version",
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

ith_status ith_pipeline_open(ith_context *context, const char *model_folder, ith_pipeline **out)
{
    if (out)
        *out = NULL;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, model_folder, "model_folder");
    if (!status)
        status = ith_need(context, out, "out");
    if (!status)
        status = check_library(context);
    if (status)
        return status;
    ith_pipeline *pipeline = ith_alloc_zero(context, 1, sizeof *pipeline, "a pipeline");
    if (!pipeline)
        return ITH_ERR_MEMORY;
    pipeline->context = ith_context_hold(context);
    pipeline->number = ith_draw_number(pipeline);
    pipeline->lent = ith_model_is_lent(context, model_folder);
    pthread_mutex_init(&pipeline->lock, NULL);
    status = ith_model_read(context, model_folder, &pipeline->model);
    if (status) {
        ith_pipeline_close(&pipeline);
        return status;
    }
    *out = pipeline;
    return ITH_OK;
}

void ith_pipeline_close(ith_pipeline **pipeline)
{
    if (!pipeline || !*pipeline)
        return;
    ith_context *context = (*pipeline)->context;
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
    if (pipeline)
        ith_context_interrupt(pipeline->context, true);
}
