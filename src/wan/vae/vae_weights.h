/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's weights in the order of the computation: filters in the mapped file, biases and norms as f32. A filter
 * is packed when decoding begins, because its packed form depends on the size of the picture. */
#ifndef ITH_WAN_VAE_WEIGHTS_H
#define ITH_WAN_VAE_WEIGHTS_H

#include "../weights.h"
#include "vae.h"

#define ITH_VAE_MOST_LEVELS 8
#define ITH_VAE_HISTORY 3 /* frames that a causal convolution reads: the current one and two earlier ones */

typedef struct ith_vae_filter {
    const ith_tensor *weight;        /* [out, in, frames, kernel, kernel] */
    float *bias;                     /* [out] */
    int64_t in, out, frames, kernel; /* all 0: there is no such filter */
} ith_vae_filter;

/* x + conv2(silu(norm2(conv1(silu(norm1(x)))))); if the channels change, shortcut(x) replaces the first x. */
typedef struct ith_vae_residual {
    ith_vae_filter conv1, conv2, shortcut;
    float *norm1, *norm2;
} ith_vae_residual;

/* Residual blocks; then resample doubles height and width, and time, if there is one, the frames. The last level has
 * neither. */
typedef struct ith_vae_level {
    int64_t in, out;
    ith_vae_residual *residuals; /* [config.res_blocks + 1] */
    ith_vae_filter resample, time;
} ith_vae_level;

struct ith_vae {
    ith_vae_config config;
    ith_operand_types types;
    ith_store *store;
    ith_weights_memory memory; /* of biases and norms */
    int64_t weight_bytes;      /* of all filters in the file */
    ith_vae_filter post_quant, in, out;
    ith_vae_residual before, after; /* before and after the attention */
    ith_vae_filter qkv, proj;       /* of the attention */
    float *attention_norm, *norm_out;
    ith_vae_level levels[ITH_VAE_MOST_LEVELS];
    ith_vae_residual residuals[]; /* of all levels */
};

/* An autoencoder without weights: its filters have their sizes only. */
ith_status ith_vae_create(ith_context *context, const ith_vae_config *config, ith_operand_types types, ith_vae **out);
/* Bytes of memory that a loaded one holds, besides its open files. */
int64_t ith_vae_bytes(const ith_vae *vae);

/* Channels of a level: at its input, and after its residual blocks. */
static inline int64_t ith_vae_level_out(const ith_vae_config *config, int64_t level)
{
    return config->decoder_base_dim * config->dim_mult[config->levels - 1 - level];
}

static inline int64_t ith_vae_level_in(const ith_vae_config *config, int64_t level)
{
    return level ? ith_vae_level_out(config, level - 1) / 2 : ith_vae_level_out(config, 0);
}

#endif
