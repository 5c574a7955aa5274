/* SPDX-License-Identifier: Apache-2.0 */
/* The VAE decoder for latents of one size: its layers, and its memory in one allocation. */
#ifndef ITH_WAN_VAE_DECODER_H
#define ITH_WAN_VAE_DECODER_H

#include "vae_memory.h"

/* The layers of a level, all at one picture size, in this order: residual blocks; time, which doubles the frames;
 * resample, which doubles height and width. After `time` the frames come in pairs. */
typedef struct ith_vae_decoder_level {
    int64_t height, width, in, out; /* height and width that are computed, before doubling; input, output channels */
    ith_vae_span rows;              /* the rows of the whole frame that are computed, `height` in number */
    ith_vae_span read;              /* the part of `rows` that `time` and `resample` read, counted from rows.begin */
    int64_t cut;                    /* number of rows above rows.begin that `resample` of the level before computes */
    ith_vae_conv *residuals;        /* two consecutive convolutions for each residual block */
    ith_vae_conv *time, *resample;  /* NULL if the level does not double the frames, or the height and width */
    int64_t repeats;                /* of the shortcut around the level (vae_shortcut.h); 0: there is none */
    ith_vae_rows begin, end;        /* rows before and after the residual blocks; they may share their memory */
} ith_vae_decoder_level;

/* A decoder for latents of one size. */
typedef struct ith_vae_decoder {
    const ith_vae *vae;
    ith_vae_work work;   /* levels[0].begin is a part of work.middle.x */
    ith_vae_span wanted; /* the rows of the last level that become rows for the caller, counted from its first row */
    ith_vae_conv *in, *out;
    ith_vae_decoder_level levels[ITH_VAE_MOST_LEVELS];
    float *frames;        /* the wanted rows of one or two decoded frames, [slots of out, height, width, 3] */
    ith_vae_conv convs[]; /* all convolutions, in the order of the computation */
} ith_vae_decoder;

/* Makes the layers that decode the band of latents of this size. ith_vae_work_open then allocates their memory. */
ith_status ith_vae_decoder_create(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                                  ith_vae_decoder **out);
void ith_vae_decoder_free(ith_vae_decoder **decoder);

#endif
