/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder of the Wan 2.1 causal video autoencoder: latents to frames, one latent frame at a time. Its memory does
 * not grow with the number of frames. */
#ifndef ITH_WAN_VAE_H
#define ITH_WAN_VAE_H

#include "../../base/context.h"
#include "../../files/store.h"
#include "../../linear/operand.h"
#include "../work.h"

typedef struct ith_vae_config {
    int64_t z_dim, decoder_base_dim, levels, dim_mult[8], res_blocks;
    bool temporal_up[8];               /* whether each upsampling, in the order of decoding, also doubles the frames */
    float mean[64], std[64];           /* one for each latent channel; decoding begins with z * std + mean */
    int64_t stride_time, stride_space; /* frames and pixels per latent, in time and space: usually 4 and 8 */
} ith_vae_config;
/* Reads and checks folder/config.json. The Wan 2.2 autoencoder (is_residual) is refused by name. */
ith_status ith_vae_config_read(ith_context *context, const char *folder, ith_vae_config *out);

/* Sets the configuration of the published Wan 2.1 autoencoder, but with base_dim channels at the largest picture (96 in
 * the published one) and res_blocks residual blocks in a level (2), for benchmarks. */
void ith_vae_config_usual(int64_t base_dim, int64_t res_blocks, ith_vae_config *out);

typedef struct ith_vae ith_vae;
/* Opens the weight files of the autoencoder. types: the number types of its matrix products and convolutions; its
 * attention is f32. */
ith_status ith_vae_open(ith_context *context, const char *folder, ith_operand_types types, ith_vae **out);
/* Opens the weight files, and checks that they hold every tensor of the decoder, by name, type and shape, and no other
 * tensor except the encoder's. Reads headers only. The caller closes *store; with store NULL the files are closed. */
ith_status ith_vae_check(ith_context *context, const char *folder, ith_store **store);
/* Makes an autoencoder with random weights of this type, for benchmarks. */
ith_status ith_vae_make_random(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                               ith_dtype type, ith_vae **out);
/* Sets *bytes to the memory of these random weights, which ith_vae_decode_bytes does not count. */
ith_status ith_vae_random_bytes(ith_context *context, const ith_vae_config *config, ith_dtype type, int64_t *bytes);
void ith_vae_free(ith_context *context, ith_vae **vae);
const ith_vae_config *ith_vae_config_of(const ith_vae *vae);

/* Rows [begin, end) of a picture. */
typedef struct ith_vae_span {
    int64_t begin, end;
} ith_vae_span;

/* A function that gets a decoded frame, [height, width, 3] in [-1, 1], which is valid during the call. A result other
 * than ITH_OK ends the decoding. */
typedef ith_status (*ith_vae_frame_fn)(void *user, int64_t index, const float *frame, int64_t height, int64_t width);
/* Decodes latents [z_dim, frames, height, width], normalised as the DiT leaves them, into stride_time (frames - 1) + 1
 * frames. Nothing is allocated between the first frame and the last.
 *
 * band: on_frame gets only the rows of a frame that belong to rows band->begin to band->end - 1 of the latents, of
 * which there is at least one; NULL: all rows. They have the same bits as in a whole frame. The layers before the first
 * level are computed for all rows. At each level, some rows above and below the band are computed too, because later
 * convolutions read them: at the first level of the published autoencoder up to 14 rows on each side.
 *
 * load_seconds (NULL: not wanted): the time of packing the weights, before the first frame, is added to it. */
ith_status ith_vae_decode(ith_context *context, const ith_vae *vae, const float *latents, int64_t frames,
                          int64_t height, int64_t width, const ith_vae_span *band, ith_vae_frame_fn on_frame,
                          void *user, double *load_seconds);
/* Sets *bytes to the peak memory of opening the autoencoder and decoding this band of latents of this size, besides the
 * mapped files. */
ith_status ith_vae_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                int64_t height, int64_t width, const ith_vae_span *band, int64_t *bytes);
/* Lists the work of decoding this band of `frames` latent frames of this size. */
ith_status ith_vae_list(ith_context *context, const ith_vae_config *config, ith_operand_types types, int64_t frames,
                        int64_t height, int64_t width, const ith_vae_span *band, const ith_work_list *list);

#endif
