/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the memory that a run takes on a device (run_memory.h). */
#include "predicted_run.h"

#include "../../../base/context.h"
#include "../../../base/size.h"
#include "../../vae/vae.h"
#include "../prompts.h"

ith_status ith_settle_device_memory(ith_context *context, ith_generate_options *options)
{
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    if (!ith_context_device_use(context))
        return ITH_OK;
    ith_status status = ith_device_describe(context, &info);
    if (!status && (!options->device_memory || options->device_memory > info.free_bytes))
        options->device_memory = info.free_bytes;
    return status;
}

/* The memory of decoding. Rank 0's device decodes whole frames. */
static ith_status decode_device_bytes(const ith_predicted_run *run, int64_t *bytes)
{
    const ith_vae_extent extent = {.height = run->size.height, .width = run->size.width};
    *bytes = 0;
    if (!run->model->vae.levels || !ith_team_has_first(run->team))
        return ITH_OK;
    return ith_vae_decode_device_bytes(run->context, &run->model->vae, run->types.products, &extent, bytes);
}

static ith_status expert_device_bytes(const ith_predicted_run *run, int expert, int64_t *streamed, int64_t *bytes)
{
    const ith_model *model = run->model;
    const ith_dit_choices choices = {.types = run->types, .lora = model->loras[expert]};
    ith_dit *dit = NULL;
    ith_status status = ith_dit_outline(run->context, &model->dit[expert], &choices, &dit);
    if (!status)
        status = ith_predict_expert_on_device(run, dit, streamed, bytes);
    ith_dit_free(run->context, &dit);
    return status;
}

ith_status ith_predict_device(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                              bool denoised, const ith_team *team, ith_device_need *need)
{
    const ith_model *model = pipeline->model;
    int64_t counts[2] = {0, 0}, bytes = 0;
    *need = (ith_device_need){.bytes = 0};
    if (!ith_context_device_use(context))
        return ITH_OK;
    ith_status status = options->from_latents ? ITH_OK : ith_count_ids(pipeline, context, options, counts);
    const ith_predicted_run run = ith_predicted_run_of(model, context, options, denoised, counts, team);
    if (!status)
        status = decode_device_bytes(&run, &need->bytes);
    for (int i = 0; i < model->info.experts && !status && !options->from_latents && !denoised; i++) {
        status = expert_device_bytes(&run, i, &need->streamed[i], &bytes);
        need->bytes = ith_max64(need->bytes, bytes);
    }
    return status;
}
