/* SPDX-License-Identifier: Apache-2.0 */
/* Small pictures of unfinished latents, by a linear map from the channels of a latent to a colour:
 *
 *   rgb_j = map_j0 + sum_c map_jc z_c
 *
 * The map is fitted by least squares to the model's autoencoder, so previews work with every autoencoder. The encoder
 * makes latents from a test picture of squares with known random colours. If the weight files have no encoder that can
 * be used, the decoder makes colours from random normal latents instead; the colours of previews are then paler and
 * less accurate. The first latent frame, which stands for one frame, has another map than the later ones. */
#ifndef ITH_WAN_PREVIEW_H
#define ITH_WAN_PREVIEW_H

#include "rank.h"

/* An ith_rank_part for rank 0: fits rank->preview_map. */
ith_status ith_preview_fit(ith_rank *rank, void *unused);
/* Sets *bytes to the memory of this call. lends: as ith_team.lends. */
ith_status ith_preview_bytes(ith_context *context, const ith_model *model, bool lends, ith_operand_types types,
                             int64_t *bytes);

/* The number of latent frames in a picture: the first, the middle and the last one, side by side. */
int64_t ith_preview_frames(const ith_latent_size *size);
/* Draws these latent frames with the maps of ith_preview_fit. The latents are given as tokens (dit_patchify.c). rgb:
 * [height, frames * width, 3]. */
void ith_preview_draw(const float *map, const ith_latent_size *size, const float *tokens, uint8_t *rgb);

#endif
