/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the files that a run writes, before it computes (output_files.h). */
#include "output_files.h"

#include "../../base/context.h"
#include "../../base/output_place.h"
#include "../../base/replace_file.h"
#include "../text/tokenizer.h"

#include <string.h>

/* A file, and the option that names it. */
typedef struct run_file {
    const char *option, *path;
} run_file;

enum { OUTPUTS = 3, FILES = 5 };

static bool is_same(const char *a, const char *b)
{
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return !ith_output_is_device(a) && !ith_output_real(a, real_a) && !ith_output_real(b, real_b) &&
           !strcmp(real_a, real_b);
}

/* Checks that the output `file` is none of the `count` files in `others`. */
static ith_status check_distinct(ith_context *context, const run_file *file, const run_file *others, int count)
{
    for (int i = 0; i < count; i++)
        if (others[i].path && is_same(file->path, others[i].path))
            return ith_fail(context, ITH_ERR_ARGUMENT, "%s and %s are the same file, %s: name another one for %s",
                            file->option, others[i].option, file->path, file->option);
    return ITH_OK;
}

/* ---- Files of the model ------------------------------------------------------------------------------------------ */

/* Checks that the output `file` is not at `path`, where a file of the model lies. path may be NULL. */
static ith_status check_path(ith_context *context, const run_file *file, const char *path)
{
    if (!path || !is_same(file->path, path))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s is a file of the model, %s: name another one for %s", file->option,
                    file->path, file->option);
}

/* Checks that the output is not folder/name. folder may be NULL. */
static ith_status check_name(ith_context *context, const run_file *file, const char *folder, const char *name)
{
    if (!folder)
        return ITH_OK;
    char *path = ith_format(context, "%s/%s", folder, name);
    ith_status status = path ? check_path(context, file, path) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

/* Checks that the output is none of the weight files of a component, nor its configuration. */
static ith_status check_part(ith_context *context, const run_file *file, const ith_model *model, ith_part part)
{
    const ith_source *source = &model->sources.parts[part];
    const ith_store *store = model->files[part];
    ith_status status = check_name(context, file, source->folder, "config.json");
    if (!status)
        status = check_name(context, file, source->config, "config.json");
    if (!status && store)
        status = check_path(context, file, ith_store_path(store));
    for (int64_t i = 0; store && ith_store_file(store, i) && !status; i++)
        status = check_path(context, file, ith_store_file(store, i));
    return status;
}

static ith_status check_loras(ith_context *context, const run_file *file, const ith_lora *lora)
{
    ith_status status = ITH_OK;
    for (int i = 0; i < ith_lora_count(lora) && !status; i++)
        status = check_path(context, file, ith_lora_path(lora, i));
    return status;
}

static ith_status check_model(ith_context *context, const run_file *file, const ith_model *model)
{
    const ith_sources *sources = &model->sources;
    const struct {
        const char *folder, *name;
    } others[] = {{sources->folder, "model_index.json"},
                  {sources->folder, "scheduler/scheduler_config.json"},
                  {sources->tokenizer, ITH_TOKENIZER_MODEL},
                  {sources->tokenizer, ITH_TOKENIZER_JSON}};
    ith_status status = check_path(context, file, sources->tokenizer);
    for (size_t i = 0; i < sizeof others / sizeof *others && !status; i++)
        status = check_name(context, file, others[i].folder, others[i].name);
    for (ith_part part = 0; part < ITH_PARTS && !status; part++)
        status = check_part(context, file, model, part);
    for (int i = 0; i < 2 && !status; i++)
        status = check_loras(context, file, model->loras[i]);
    return status;
}

ith_status ith_output_files_check(ith_context *context, const ith_generate_options *options, const ith_model *model)
{
    const run_file files[FILES] = {{"checkpoint_file", options->checkpoint_file},
                                   {"latents_file", options->latents_file},
                                   {"dump_file", options->dump_file},
                                   {"noise_file", options->noise_file},
                                   {"resume_file", options->resume_file}};
    for (int i = 0; i < OUTPUTS; i++) {
        const int others = i ? FILES - i - 1 : FILES - 2; /* a saved run may replace the one that it resumes */
        if (!files[i].path)
            continue;
        ith_status status = check_distinct(context, &files[i], &files[i + 1], others);
        if (!status)
            status = check_model(context, &files[i], model);
        if (!status)
            status = ith_replace_check(context, files[i].path);
        if (status)
            return status;
    }
    return ITH_OK;
}
