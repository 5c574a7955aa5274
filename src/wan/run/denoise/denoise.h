/* SPDX-License-Identifier: Apache-2.0 */
/* The denoising loop: turns noise into latents, with one expert after the other. */
#ifndef ITH_WAN_DENOISE_H
#define ITH_WAN_DENOISE_H

#include "../rank.h"

/* Collective: turns the pipeline's latents from noise into the result, which rank 0 decodes. ITH_ERR_NUMERIC if latents
 * are not finite; its error message names the step. The error message of ITH_ERR_INTERRUPTED names the work that was
 * not finished: a step, or the preparation of an expert. */
ith_status ith_denoise(ith_rank *rank);

#endif
