/* SPDX-License-Identifier: Apache-2.0 */
/* The VAE decoder for latents of one size: its layers, and its memory in one allocation. */
#ifndef ITH_WAN_VAE_DECODER_H
#define ITH_WAN_VAE_DECODER_H

#include "../work.h"
#include "vae_layers.h"

/* The layers of a level (those at one picture size), in this order: residual blocks; time, which doubles the frames;
 * resample, which doubles height and width. After a doubling of the frames they come in pairs. */
typedef struct ith_vae_level_layers {
    int64_t height, width, in, out; /* height and width that are computed, before doubling; input, output channels */
    ith_vae_span rows;              /* the rows of the whole frame that are computed, `height` in number */
    ith_vae_span read;              /* the part of `rows` that `time` and `resample` read, counted from rows.begin */
    int64_t cut;                    /* number of rows above rows.begin that `resample` of the level before computes */
    ith_vae_conv *residuals;        /* two consecutive convolutions for each residual block */
    ith_vae_conv *time, *resample;  /* NULL if the level does not double the frames, or the height and width */
    ith_vae_rows begin, end;        /* rows before and after the residual blocks; the same memory if in = out */
} ith_vae_level_layers;

typedef struct ith_vae_decoder {
    const ith_vae *vae;
    ith_vae_work work;
    int64_t pixels;      /* height * width of a latent frame */
    ith_vae_span wanted; /* the rows of a decoded frame that the caller gets, counted from the last level's first row */
    ith_vae_rows latent; /* a whole frame of the size of the latents, of which levels[0].begin is a part */
    ith_vae_linear *post_quant;
    ith_vae_conv *in, *before, *after, *out; /* before, after: residual blocks around the attention */
    ith_vae_attention attention;
    ith_vae_level_layers levels[ITH_VAE_MOST_LEVELS];
    float *frames; /* the wanted rows of one or two decoded frames, [slots of out, rows, width, 3] */
    char *memory;  /* one allocation for all buffers and packed weights */
    char *rows;    /* start of the rows of all convolutions; before decoding, this memory serves to pack weights */
    ith_vae_conv convs[]; /* all convolutions, in the order of the computation */
} ith_vae_decoder;

/* Makes the layers that decode rows band->begin to band->end of the latents, but allocates no memory for buffers and
 * weights yet. band NULL: all rows. */
ith_status ith_vae_decoder_create(ith_context *context, const ith_vae *vae, int64_t height, int64_t width,
                                  const ith_vae_span *band, ith_vae_decoder **out);
/* Allocates the decoder's memory and packs its weights. After this, decoding allocates nothing. */
ith_status ith_vae_decoder_open(ith_vae_decoder *decoder);
/* Sets *bytes to the memory that ith_vae_decoder_create and ith_vae_decoder_open take from the context. */
ith_status ith_vae_decoder_bytes(ith_vae_decoder *decoder, int64_t *bytes);
void ith_vae_decoder_free(ith_vae_decoder **decoder);
/* Lists the work of decoding `frames` latent frames with a decoder that may be open or not. */
void ith_vae_decoder_list(const ith_vae_decoder *decoder, int64_t frames, const ith_work_list *list);

#endif
