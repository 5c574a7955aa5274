/* SPDX-License-Identifier: Apache-2.0 */
/* The denoising loop: noise to latents, by one expert after the other, on all ranks of this process. */
#ifndef ITH_WAN_DENOISE_H
#define ITH_WAN_DENOISE_H

#include "latents.h"
#include "../model.h"
#include "../precision.h"

typedef struct ith_denoise_job {
    const ith_model *model;
    const ith_generate_options *options; /* resolved */
    ith_number_types types;
    ith_latent_size size;
    float *latents;       /* in: noise; out: what is to be decoded */
    const float *text[2]; /* rows of the prompt and of the negative prompt; the second NULL where it is not needed */
    int64_t text_count[2];
    ith_dump *dump;              /* takes the latents after every step; NULL: not wanted */
    ith_generate_report *report; /* times are added to it */
} ith_denoise_job;

/* ITH_ERR_NUMERIC names the step after which latents were not finite; ITH_ERR_INTERRUPTED the one not begun. */
ith_status ith_denoise(ith_context *context, ith_denoise_job *job);

/* Whether any step of such a run needs the negative prompt. */
bool ith_denoise_is_guided(const ith_model *model, const ith_generate_options *options);
/* The ranks that the sequence is split over: all, or half of them with the guidance branches side by side. */
int ith_denoise_sequence_ranks(const ith_model *model, const ith_generate_options *options);
/* The batch of one forward pass: 2 where both guidance branches run as one. */
int64_t ith_denoise_batch(const ith_model *model, const ith_generate_options *options);

#endif
