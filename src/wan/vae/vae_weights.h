/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's weights in the order of the computation. Weights of convolutions and linear layers (`ith_vae_filter`)
 * stay in the mapped file; biases and norms are read as f32. A filter is packed when decoding begins, because its
 * packed form depends on the size of the picture. */
#ifndef ITH_WAN_VAE_WEIGHTS_H
#define ITH_WAN_VAE_WEIGHTS_H

#include "../weights.h"
#include "vae.h"

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
 * width, and `time`, which doubles the frames. Some levels have no `time`, and the last level has neither. */
typedef struct ith_vae_level {
    int64_t in, out;
    ith_vae_residual *residuals; /* [config.res_blocks + 1] residual blocks */
    ith_vae_filter resample, time;
} ith_vae_level;

struct ith_vae {
    ith_vae_config config;
    ith_operand_types types;
    ith_weights_memory memory; /* memory of biases and norms, and the weight files */
    int64_t weight_bytes;      /* bytes that the weights of convolutions and linear layers take in the file */
    ith_vae_filter post_quant, in, out;
    ith_vae_residual before, after; /* the residual blocks before and after the attention */
    ith_vae_filter qkv, proj;       /* linear layers of the attention */
    float *attention_norm, *norm_out;
    ith_vae_level levels[ITH_VAE_MOST_LEVELS];
    ith_vae_residual residuals[]; /* the residual blocks of all levels */
};

/* Makes an autoencoder without weights, to predict memory: the sizes of its weights are set, but not their data. */
ith_status ith_vae_create(ith_context *context, const ith_vae_config *config, ith_operand_types types, ith_vae **out);
/* The bytes of memory that an open autoencoder holds, besides its mapped files. */
int64_t ith_vae_bytes(const ith_vae *vae);

/* The number of channels after the residual blocks of a level. A level is the layers at one picture size. */
static inline int64_t ith_vae_level_out(const ith_vae_config *config, int64_t level)
{
    return config->decoder_base_dim * config->dim_mult[config->levels - 1 - level];
}

/* The number of channels at the beginning of a level (the layers at one picture size). The upsampling before it has
 * halved the channels of the previous level. */
static inline int64_t ith_vae_level_in(const ith_vae_config *config, int64_t level)
{
    return level ? ith_vae_level_out(config, level - 1) / 2 : ith_vae_level_out(config, 0);
}

#endif
