/* SPDX-License-Identifier: Apache-2.0 */
/* What ith_vae holds: every weight of the decoder where it lies in its file, in the order of the computation. Packed
 * forms depend on the size of the picture and are made when decoding begins. */
#ifndef ITH_WAN_VAE_WEIGHTS_H
#define ITH_WAN_VAE_WEIGHTS_H

#include "../weights.h"
#include "vae.h"

#define ITH_VAE_MOST_LEVELS 8
#define ITH_VAE_HISTORY 3 /* frames that a causal convolution looks at: two earlier ones and its own */

typedef struct ith_vae_filter {
    const ith_tensor *weight; /* [out, in, frames, kernel, kernel]; NULL: there is none */
    float *bias;
    int64_t in, out, frames, kernel;
} ith_vae_filter;

/* x + conv2(silu(norm2(conv1(silu(norm1(x)))))); where channels change, shortcut(x) in place of x. */
typedef struct ith_vae_residual {
    ith_vae_filter conv1, conv2, shortcut;
    float *norm1, *norm2;
} ith_vae_residual;

/* Residual blocks, then twice the height and width, and twice the frames if `time` is there; not after the last. */
typedef struct ith_vae_level {
    int64_t in, out;
    ith_vae_residual *residuals; /* [config.res_blocks + 1] */
    ith_vae_filter resample, time;
} ith_vae_level;

struct ith_vae {
    ith_vae_config config;
    ith_operand_types types;
    ith_store *store;
    ith_weights_memory memory; /* of all biases and norms */
    int64_t weight_bytes;      /* of all filters, in the file */
    ith_vae_filter post_quant, in, out;
    ith_vae_residual before, after; /* the attention */
    ith_vae_filter qkv, proj;       /* the attention's */
    float *attention_norm, *norm_out;
    ith_vae_level levels[ITH_VAE_MOST_LEVELS];
    ith_vae_residual residuals[]; /* of all levels */
};

/* An autoencoder whose filters have sizes but no weights. */
ith_status ith_vae_create(ith_context *context, const ith_vae_config *config, ith_operand_types types, ith_vae **out);
/* Bytes of memory that a loaded one holds, besides its open files. */
int64_t ith_vae_bytes(const ith_vae *vae);

/* Channels of a level of the decoder, on its way in and after its residual blocks. */
static inline int64_t ith_vae_level_out(const ith_vae_config *config, int64_t level)
{
    return config->decoder_base_dim * config->dim_mult[config->levels - 1 - level];
}

static inline int64_t ith_vae_level_in(const ith_vae_config *config, int64_t level)
{
    return level ? ith_vae_level_out(config, level - 1) / 2 : ith_vae_level_out(config, 0);
}

#endif
