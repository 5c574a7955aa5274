/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of one rank in the denoising loop. */
#ifndef ITH_WAN_DENOISE_BUFFERS_H
#define ITH_WAN_DENOISE_BUFFERS_H

#include "denoise_rank.h"

/* Makes the buffers of this rank and its solver. */
ith_status ith_denoise_make_buffers(ith_denoiser *w);
/* The numbers of this rank's tokens. */
int64_t ith_denoise_share_numbers(const ith_denoiser *w);
/* The number of tensors in the file of a saved run: the latents and the solver's arrays. */
int64_t ith_denoise_saved_tensors(const ith_model *model, const ith_generate_options *options);
/* Describes contiguous numbers as the memory of a transfer. */
ith_region ith_denoise_region(float *numbers, int64_t count);
/* Gathers numbers of all ranks' tokens in b.whole on rank 0, and converts them to latents there. share: the numbers of
 * this rank's tokens. latents: used on rank 0 alone; NULL: the numbers are not converted. */
ith_status ith_denoise_gather(ith_denoiser *w, float *share, float *latents);

/* The bytes of the file of a saved run. */
int64_t ith_denoise_saved_bytes(const ith_model *model, const ith_generate_options *options,
                                const ith_latent_size *size);
/* The bytes that rank `rank` of `ranks` needs for denoising, besides its ith_dit_workspace. */
int64_t ith_denoise_bytes(const ith_model *model, const ith_generate_options *options, const ith_latent_size *size,
                          int ranks, int rank);

#endif
