/* SPDX-License-Identifier: Apache-2.0 */
/* Saves the state of the denoising loop, and reads it. */
#ifndef ITH_WAN_DENOISE_SAVES_H
#define ITH_WAN_DENOISE_SAVES_H

#include "denoise_rank.h"

/* Brings the latents and the solver's arrays after `step` steps to rank 0. */
ith_status ith_denoise_keep_state(ith_denoiser *w, int64_t step);
/* Saves the run before its first step, so that a place that cannot be written fails now (ith_rank_first). */
ith_status ith_denoise_save_first(ith_rank *rank, void *denoiser);
/* Saves the run after a step, if it is to be saved. A file that cannot be written is a warning: the run goes on. */
ith_status ith_denoise_save_after_step(ith_denoiser *w, int64_t step);
/* After a failure: saves the state before the step that was not finished, unless the file has it. The group has ended,
 * and no rank waits. Appends to the error message if that fails. Returns `failure`. */
ith_status ith_denoise_save_at_failure(ith_denoiser *w, ith_status failure);
/* Reads the state of the saved run into the buffers of this rank. */
ith_status ith_denoise_read_state(ith_denoiser *w);
/* Logs a warning if the saved run had another plan, so that the bits may differ. */
void ith_denoise_compare_attention(const ith_denoiser *w);

#endif
