/* SPDX-License-Identifier: Apache-2.0 */
/* A step's prediction. */
#ifndef ITH_WAN_DENOISE_PASS_H
#define ITH_WAN_DENOISE_PASS_H

#include "denoise_rank.h"

/* Predicts the velocity of this rank's tokens at a step, and applies guidance. It is the first half of b.velocity. */
ith_status ith_denoise_predict(ith_denoiser *w, int64_t step);

#endif
