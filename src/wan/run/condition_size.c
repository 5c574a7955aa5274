/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of the inputs that come from a video's images (condition_size.h). */
#include "condition_size.h"

bool ith_condition_is_masked(const ith_model *model)
{
    return model->info.image_use == ITH_IMAGE_NEEDED;
}

ith_latent_size ith_condition_size(const ith_model *model, const ith_generate_options *options,
                                   const ith_latent_size *latents)
{
    ith_latent_size size = *latents;
    if (!options->image)
        return (ith_latent_size){0};
    if (ith_condition_is_masked(model))
        size.channels += model->vae.stride_time;
    else
        size.frames = 1;
    return size;
}

int64_t ith_condition_image_rows(const ith_model *model, const ith_generate_options *options)
{
    const int images = (options->image != NULL) + (options->last_image != NULL);
    return ith_model_has_part(model, ITH_PART_VISION) ? images * ith_vision_tokens(&model->vision) : 0;
}

int64_t ith_condition_known(const ith_model *model, const ith_generate_options *options, const ith_latent_size *latents)
{
    return options->image && !ith_condition_is_masked(model) ? latents->height / 2 * (latents->width / 2) : 0;
}
