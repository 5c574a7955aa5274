/* SPDX-License-Identifier: Apache-2.0 */
/* The autoencoders of the golden files, for tests of both halves. */
#ifndef ITH_TESTS_VAE_CHECKPOINTS_H
#define ITH_TESTS_VAE_CHECKPOINTS_H

#include "wan/vae/vae.h"

/* An autoencoder, its number of latent channels, and the number of pixels of a latent in height and in width. */
typedef struct vae_checkpoint {
    const char *folder;
    int64_t channels, stride;
} vae_checkpoint;

enum { VAE_WAN_21, VAE_WAN_22, VAE_CHECKPOINTS };
extern const vae_checkpoint vae_checkpoints[VAE_CHECKPOINTS];

ith_vae_config vae_config_in(ith_context *context, const char *folder);
/* The bytes of the context that the open weight files take. */
int64_t vae_file_bytes(ith_context *context, const char *folder);

/* Calls `test` for each checkpoint, each kind of operands of this machine and pictures of a few sizes, in latents, with
 * 1 to 3 threads. */
void with_vaes_and_sizes(void (*test)(const vae_checkpoint *checkpoint, int kind, int64_t height, int64_t width));

#endif
