/* SPDX-License-Identifier: Apache-2.0 */
/* The size of the inputs of the transformer that come from a video's images (condition.h). */
#ifndef ITH_WAN_CONDITION_SIZE_H
#define ITH_WAN_CONDITION_SIZE_H

#include "../model/model.h"
#include "../sample/latents.h"

/* Whether the model takes a condition that begins with a mask. */
bool ith_condition_is_masked(const ith_model *model);
/* The size of the condition or of the first latent frame; all 0 if the run has no image. */
ith_latent_size ith_condition_size(const ith_model *model, const ith_generate_options *options,
                                   const ith_latent_size *latents);
/* The number of rows that the image encoder makes of the images (image_rows.h); 0 if the model has no image encoder. */
int64_t ith_condition_image_rows(const ith_model *model, const ith_generate_options *options);
/* The number of the first tokens whose latents are known from the image (ith_dit_shape.known). */
int64_t ith_condition_known(const ith_model *model, const ith_generate_options *options,
                            const ith_latent_size *latents);

#endif
