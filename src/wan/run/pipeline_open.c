/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes pipelines, and answers questions about them (ithaca/wan.h). */
#include "../../base/context.h"
#include "../../base/sized.h"
#include "../../base/version.h"
#include "../model/lend.h"
#include "identity.h"
#include "pipeline.h"
#include "prompts.h"

#include <string.h>

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
    ith_status status = ith_need_to_make(context, files, "files", out);
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
        status = ith_tokenizer_check(pipeline->context, text, ids, count);
    if (!status)
        status = ith_pipeline_need_tokenizer(pipeline, pipeline->context);
    return status ? status : ith_tokenizer_encode(pipeline->context, pipeline->tokenizer, text, ids, count);
}

void ith_pipeline_cancel(ith_pipeline *pipeline)
{
    if (pipeline && !atomic_exchange(&pipeline->cancelled, true))
        ith_context_interrupt(pipeline->context);
}
