/* SPDX-License-Identifier: Apache-2.0 */
/* The VAE encoder for latents of one size: its layers, and its memory in one allocation. */
#ifndef ITH_WAN_VAE_ENCODER_H
#define ITH_WAN_VAE_ENCODER_H

#include "vae_memory.h"

/* The layers of a level, all at one picture size, in this order: residual blocks; resample, which halves height and
 * width; time, which halves the frames. The frames of a level come in pairs if a later level halves them. */
typedef struct ith_vae_encoder_level {
    int64_t height, width, in, out; /* height and width before halving; input, output channels */
    ith_vae_conv *residuals;        /* two consecutive convolutions for each residual block */
    ith_vae_conv *resample, *time;  /* NULL if the level does not halve the height and width, or the frames */
    ith_vae_rows begin, end; /* rows before and after the residual blocks; the same memory if they are in place */
    int64_t averaged;        /* for the shortcut around the level (vae_shortcut.h); 0: there is none */
    int64_t filling;         /* the slot of `begin` that gets the next frame of the level before */
} ith_vae_encoder_level;

/* An encoder for latents of one size. */
typedef struct ith_vae_encoder {
    const ith_vae *vae;
    ith_vae_work work;  /* the rows at the end of the last level are work.middle.x */
    ith_vae_rows input; /* rows of conv_in */
    float *pixels; /* rows of a frame, before each square of pixels becomes one of `input`; NULL: it is one pixel */
    ith_vae_conv *in, *out;
    ith_vae_encoder_level levels[ITH_VAE_MOST_LEVELS];
    ith_vae_conv convs[]; /* all convolutions, in the order of the computation */
} ith_vae_encoder;

/* Makes the layers that encode into latents of this size. ith_vae_work_open then allocates their memory. */
ith_status ith_vae_encoder_create(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                                  ith_vae_encoder **out);
void ith_vae_encoder_free(ith_vae_encoder **encoder);

#endif
