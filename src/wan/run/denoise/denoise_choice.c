/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of the options of a run for its denoising steps: experts, guidance, ranks. */
#include "denoise_choice.h"

#include "../../../base/size.h"
#include "../../sample/sampler.h"
#include "../condition_size.h"

bool ith_denoise_step_is_high(const ith_model *model, const ith_generate_options *options, double timestep)
{
    return model->info.experts == 1 || timestep >= options->boundary * (double)model->scheduler.train_steps;
}

bool ith_denoise_is_guided(const ith_model *model, const ith_generate_options *options)
{
    return options->guidance[0] > 1 || (model->info.experts == 2 && options->guidance[1] > 1);
}

ith_status ith_denoise_guided_steps(ith_context *context, const ith_model *model, const ith_generate_options *options,
                                    int64_t first, int64_t *count)
{
    const ith_sampling sampling = {options->solver, options->sigmas, options->steps, options->shift};
    ith_sampler *sampler = NULL;
    *count = 0;
    ith_status status = ith_sampler_create(context, &model->scheduler, &sampling, 0, &sampler);
    for (int64_t step = first; step < options->steps && !status; step++)
        *count += options->guidance[!ith_denoise_step_is_high(model, options, ith_sampler_timestep(sampler, step))] > 1;
    ith_sampler_destroy(context, &sampler);
    return status;
}

int ith_denoise_sequence_ranks(const ith_model *model, const ith_generate_options *options, int ranks)
{
    bool halves = options->cfg == ITH_CFG_PARALLEL && ith_denoise_is_guided(model, options);
    return halves ? ranks / 2 : ranks;
}

int64_t ith_denoise_batch(const ith_model *model, const ith_generate_options *options)
{
    return options->cfg == ITH_CFG_BATCH && ith_denoise_is_guided(model, options) ? 2 : 1;
}

ith_dit_shape ith_denoise_shape(const ith_model *model, const ith_generate_options *options,
                                const ith_latent_size *size, const int64_t counts[2], int64_t batch)
{
    return (ith_dit_shape){.batch = batch,
                           .frames = size->frames,
                           .height = size->height,
                           .width = size->width,
                           .longest_text = ith_max64(counts[0], counts[1]),
                           .known = ith_condition_known(model, options, size),
                           .image_rows = ith_condition_image_rows(model, options)};
}

ith_linear_keep ith_denoise_keep(const ith_model *model, const ith_generate_options *options, int expert,
                                 const ith_latent_size *size, int ranks)
{
    if (options->keep_packed == ITH_KEEP_ALL)
        return ITH_LINEAR_KEEP_ALL;
    if (options->keep_packed == ITH_KEEP_NONE || options->shard_weights)
        return ITH_LINEAR_KEEP_NONE;
    const int64_t tokens = ith_dit_token_count(size->frames, size->height, size->width);
    const int64_t share = ith_div_up(tokens, ith_denoise_sequence_ranks(model, options, ranks));
    return ith_dit_keep(model->loras[expert], ith_denoise_batch(model, options) * share);
}
