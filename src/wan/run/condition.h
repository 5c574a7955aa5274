/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of the transformer that come from a video's images.
 *
 * A model that needs an image (ITH_IMAGE_NEEDED) gets a condition [m + z, F, h, w] beside the latents [z, F, h, w]:
 * first a mask with one channel for each of the m video frames of a latent frame, 1 for frames that are given and for
 * all m channels of the first latent frame; then the latents of a video with the given frames and zeros (grey)
 * elsewhere.
 *
 * With an optional image (ITH_IMAGE_OPTIONAL), the latents [z, 1, h, w] of the image replace the first latent frame of
 * the transformer's input at every step, and of the result. */
#ifndef ITH_WAN_CONDITION_H
#define ITH_WAN_CONDITION_H

#include "rank.h"

/* Makes shared.condition on rank 0: fits the images to the size of the video, and encodes them. `user` is not used. */
ith_status ith_condition_make(ith_rank *rank, void *user);
/* Sends shared.condition of rank 0 to the leaders of all processes, which call it through ith_rank_lead. */
ith_status ith_condition_share(ith_rank *rank, void *user);
/* Puts the known latents of the image, if there are any, in the place of the first latent frame of shared.latents. */
void ith_condition_impose(const ith_rank *rank);
/* Sets *bytes to the memory that making the condition takes in the process of rank 0, besides the condition. */
ith_status ith_condition_bytes(ith_context *context, const ith_model *model, const ith_generate_options *options,
                               ith_operand_types types, const ith_latent_size *latents, int64_t *bytes);

#endif
