/* SPDX-License-Identifier: Apache-2.0 */
/* The denoising loop: noise to latents, by one expert after the other. */
#ifndef ITH_WAN_DENOISE_H
#define ITH_WAN_DENOISE_H

#include "../rank.h"

/* Collective: the rank's share of denoising, in which the pipeline's latents go from noise to what is decoded on rank
 * 0. ITH_ERR_NUMERIC names the step after which latents were not finite; ITH_ERR_INTERRUPTED the one not begun. */
ith_status ith_denoise(ith_rank *rank);

/* Whether any step of such a run needs the negative prompt. */
bool ith_denoise_is_guided(const ith_model *model, const ith_generate_options *options);
/* The ranks that the sequence is split over: all, or half of them with the guidance branches side by side. */
int ith_denoise_sequence_ranks(const ith_model *model, const ith_generate_options *options, int ranks);
/* The batch of one forward pass: 2 where both guidance branches run as one. */
int64_t ith_denoise_batch(const ith_model *model, const ith_generate_options *options);

#endif
