/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of the encoder or of the decoder in the order of the computation. Weights of convolutions and linear
 * layers (`ith_vae_filter`) stay in the mapped file; biases and norms are read as f32. A filter is packed when encoding
 * or decoding begins, because its packed form depends on the size of the picture. */
#ifndef ITH_WAN_VAE_WEIGHTS_H
#define ITH_WAN_VAE_WEIGHTS_H

#include "../part/weights.h"
#include "vae.h"
#include "vae_shortcut.h"

#define ITH_VAE_MOST_LEVELS 8
#define ITH_VAE_HISTORY 3 /* frames that a causal convolution reads: the current one and two earlier ones */

/* The weight and the bias of a convolution or a linear layer. */
typedef struct ith_vae_filter {
    const ith_tensor *weight;        /* [out, in, frames, kernel, kernel] */
    float *bias;                     /* [out] */
    int64_t in, out, frames, kernel; /* channels, depth in time, height and width; all 0: the model lacks this layer */
} ith_vae_filter;

/* The weights of a residual block, x + conv2(silu(norm2(conv1(silu(norm1(x)))))). If the number of channels changes,
 * shortcut(x) replaces the first x. */
typedef struct ith_vae_residual {
    ith_vae_filter conv1, conv2, shortcut;
    float *norm1, *norm2;
} ith_vae_residual;

/* The weights of a level (the layers at one picture size): residual blocks; then `resample`, which doubles height and
 * width, or halves them in the encoder; and `time`, which does the same to the frames. Some levels have no `time`, and
 * the last level has neither. */
typedef struct ith_vae_level {
    int64_t in, out;
    /* Of the shortcut around the level (vae_shortcut.h); 0: there is none. repeats: in the decoder, how often it takes
     * each input channel. averaged: in the encoder, the number of input numbers for each output channel. */
    int64_t repeats, averaged;
    ith_vae_residual *residuals; /* [ith_vae_level_blocks] residual blocks */
    ith_vae_filter resample, time;
} ith_vae_level;

/* A half of an autoencoder. */
struct ith_vae {
    ith_vae_config config;
    ith_vae_half half;
    ith_operand_types types;
    ith_weights_memory memory;      /* memory of biases and norms, and the weight files */
    int64_t weight_bytes;           /* bytes that the weights of convolutions and linear layers take in the file */
    ith_vae_filter quant, in, out;  /* quant: the linear layer of the latents */
    ith_vae_residual before, after; /* the residual blocks before and after the attention */
    ith_vae_filter qkv, proj;       /* linear layers of the attention */
    float *attention_norm, *norm_out;
    ith_vae_level levels[ITH_VAE_MOST_LEVELS];
    ith_vae_residual residuals[]; /* the residual blocks of all levels */
};

/* Makes a half of an autoencoder without weights, to predict memory: the sizes of its weights are set, but not their
 * data. */
ith_status ith_vae_create(ith_context *context, const ith_vae_config *config, ith_vae_half half,
                          ith_operand_types types, ith_vae **out);
/* The bytes of memory that an open autoencoder holds, besides its mapped files. */
int64_t ith_vae_bytes(const ith_vae *vae);

/* The number of residual blocks in a level. */
static inline int64_t ith_vae_level_blocks(const ith_vae_config *config, ith_vae_half half)
{
    return half == ITH_VAE_DECODER ? config->res_blocks + 1 : config->res_blocks;
}

/* The number of channels after the residual blocks of a level. The levels are numbered in the order of the computation.
 */
static inline int64_t ith_vae_level_out(const ith_vae_config *config, ith_vae_half half, int64_t level)
{
    if (half == ITH_VAE_DECODER)
        return config->decoder_base_dim * config->dim_mult[config->levels - 1 - level];
    return config->encoder_base_dim * config->dim_mult[level];
}

/* The number of channels after the upsampling of a level of the decoder. In Wan 2.1 upsampling halves them. */
static inline int64_t ith_vae_upsampled(const ith_vae_config *config, int64_t level)
{
    return ith_vae_level_out(config, ITH_VAE_DECODER, level) / (config->residual ? 1 : 2);
}

/* The number of channels at the beginning of a level. */
static inline int64_t ith_vae_level_in(const ith_vae_config *config, ith_vae_half half, int64_t level)
{
    if (half == ITH_VAE_DECODER)
        return level ? ith_vae_upsampled(config, level - 1) : ith_vae_level_out(config, half, 0);
    return level ? ith_vae_level_out(config, half, level - 1) : config->encoder_base_dim;
}

/* Whether a level changes the number of frames. */
static inline bool ith_vae_level_has_time(const ith_vae_config *config, ith_vae_half half, int64_t level)
{
    const int64_t last = config->levels - 1;
    return level < last && config->temporal_up[half == ITH_VAE_DECODER ? level : last - 1 - level];
}

/* Whether the rows before and after a level's residual blocks share their memory. A shortcut around the level still
 * needs the rows before. */
static inline bool ith_vae_level_in_place(const ith_vae_level *level)
{
    return level->in == level->out && !level->repeats && !level->averaged;
}

/* The number of pixels that a level of the encoder merges into one. */
static inline int64_t ith_vae_level_merges(const ith_vae_config *config, int64_t level)
{
    if (level == config->levels - 1)
        return 1;
    return ith_vae_copies(ith_vae_level_has_time(config, ITH_VAE_ENCODER, level));
}

#endif
