/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of the options of a run for its denoising steps: experts, guidance, ranks. */
#ifndef ITH_WAN_DENOISE_CHOICE_H
#define ITH_WAN_DENOISE_CHOICE_H

#include "../../dit/dit.h"
#include "../../model/model.h"
#include "../../sample/latents.h"

/* Whether the high-noise expert computes the denoising step at this time step. A single expert computes all steps. */
bool ith_denoise_step_is_high(const ith_model *model, const ith_generate_options *options, double timestep);

/* Whether any step of a run with these options needs the negative prompt. */
bool ith_denoise_is_guided(const ith_model *model, const ith_generate_options *options);
/* Sets *count to the number of steps from step `first` on that need the negative prompt. */
ith_status ith_denoise_guided_steps(ith_context *context, const ith_model *model, const ith_generate_options *options,
                                    int64_t first, int64_t *count);
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

#endif
