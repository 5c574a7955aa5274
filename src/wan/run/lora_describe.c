/* SPDX-License-Identifier: Apache-2.0 */
/* Says which transformers the LoRA files of a pipeline change (ith_pipeline_describe_loras). */
#include "../../base/context.h"
#include "../lora/lora.h"
#include "pipeline.h"

#include <stdio.h>
#include <string.h>

/* Whether a LoRA has a file of this path with this strength. */
static bool has_use(const ith_lora *lora, const char *path, double strength)
{
    for (int i = 0; i < ith_lora_count(lora); i++)
        if (!strcmp(ith_lora_path(lora, i), path) && ith_lora_strength(lora, i) == strength)
            return true;
    return false;
}

/* Appends the line of file `index` of an expert. A file that both experts have with one strength has one line, of the
 * first expert. */
static void add_line(const ith_model *model, int expert, int index, char *text, size_t bytes)
{
    const char *path = ith_lora_path(model->loras[expert], index), *experts = "";
    const double strength = ith_lora_strength(model->loras[expert], index);
    const size_t length = strlen(text);
    const bool both = model->info.experts == 2 && has_use(model->loras[1 - expert], path, strength);
    if (both && expert == 1)
        return;
    if (model->info.experts == 2)
        experts = both ? ", both experts" : expert ? ", the low-noise expert" : ", the high-noise expert";
    const int64_t left_out = ith_lora_left_out(model->loras[expert], index);
    char left[120] = "";
    if (left_out)
        snprintf(left, sizeof left, "; %lld tensors for an image encoder, which this model has not, are left out",
                 (long long)left_out);
    snprintf(text + length, bytes - length, "LoRA %s: strength %g%s%s\n", path, strength, experts, left);
}

ith_status ith_pipeline_describe_loras(const ith_pipeline *pipeline, char *text, size_t bytes)
{
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_need(pipeline->context, text, "text");
    if (status || !bytes)
        return status;
    text[0] = '\0';
    for (int expert = 0; expert < pipeline->model->info.experts; expert++)
        for (int i = 0; i < ith_lora_count(pipeline->model->loras[expert]); i++)
            add_line(pipeline->model, expert, i, text, bytes);
    return ITH_OK;
}
