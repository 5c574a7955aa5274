/* SPDX-License-Identifier: Apache-2.0 */
/* The denoising loop: turns noise into latents, with one expert after the other. */
#ifndef ITH_WAN_DENOISE_H
#define ITH_WAN_DENOISE_H

#include "../rank.h"

/* Collective: turns the pipeline's latents from noise into the result, which rank 0 decodes. ITH_ERR_NUMERIC if latents
 * are not finite; its error message names the step. The error message of ITH_ERR_INTERRUPTED names the first step that
 * was not begun. */
ith_status ith_denoise(ith_rank *rank);

/* Whether any step of a run with these options needs the negative prompt. */
bool ith_denoise_is_guided(const ith_model *model, const ith_generate_options *options);
/* Sets *count to the number of steps that need the negative prompt. */
ith_status ith_denoise_guided_steps(ith_context *context, const ith_model *model, const ith_generate_options *options,
                                    int64_t *count);
/* The number of ranks over which a sequence is split: all, or half of them if the guidance branches run in parallel. */
int ith_denoise_sequence_ranks(const ith_model *model, const ith_generate_options *options, int ranks);
/* The batch of one forward pass: 2 if both guidance branches run as one batch, otherwise 1. */
int64_t ith_denoise_batch(const ith_model *model, const ith_generate_options *options);
/* The shape of a forward pass of `batch` guidance branches on latents of this size, whose prompts have counts[0] and
 * counts[1] token ids. */
ith_dit_shape ith_denoise_shape(const ith_model *model, const ith_generate_options *options,
                                const ith_latent_size *size, const int64_t counts[2], int64_t batch);
/* The linear layers of an expert that keep their weights in memory, for latents of this size on `ranks` ranks. */
ith_linear_keep ith_denoise_keep(const ith_model *model, const ith_generate_options *options, int expert,
                                 const ith_latent_size *size, int ranks);
/* The bytes of the file of a saved run. */
int64_t ith_denoise_saved_bytes(const ith_model *model, const ith_generate_options *options,
                                const ith_latent_size *size);
/* The bytes that rank `rank` of `ranks` needs for denoising, besides its ith_dit_workspace. */
int64_t ith_denoise_bytes(const ith_model *model, const ith_generate_options *options, const ith_latent_size *size,
                          int ranks, int rank);

#endif
