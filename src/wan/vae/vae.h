/* SPDX-License-Identifier: Apache-2.0 */
/* The causal video autoencoders of Wan 2.1 and Wan 2.2. The decoder makes frames from latents, the encoder latents from
 * frames, one latent frame at a time. Their memory does not grow with the number of frames. */
#ifndef ITH_WAN_VAE_H
#define ITH_WAN_VAE_H

#include "../../base/context.h"
#include "../../files/store.h"
#include "../../linear/operand.h"
#include "../part/work.h"

#define ITH_LATENT_MOST_CHANNELS 64 /* a larger z_dim is refused */

/* The sizes of an autoencoder, and its variants. */
typedef struct ith_vae_config {
    int64_t z_dim, decoder_base_dim, levels, dim_mult[8], res_blocks;
    bool temporal_up[8]; /* whether each upsampling, in the order of decoding, also doubles the frames */
    bool residual;       /* Wan 2.2: levels keep their channels, and shortcuts lead around them */
    int64_t patch;       /* conv_out makes the pixels of patch x patch squares: Wan 2.1 1, Wan 2.2 2 */
    float mean[ITH_LATENT_MOST_CHANNELS],
        std[ITH_LATENT_MOST_CHANNELS]; /* one for each latent channel; decoding begins with z * std + mean */
    int64_t stride_time, stride_space; /* frames and pixels per latent, in time and space: 4 and 8, Wan 2.2 4 and 16 */
    int64_t encoder_base_dim;
    const char *encoder_fault; /* the reason why the encoder cannot be used, a string constant; NULL: it can */
} ith_vae_config;

/* An open autoencoder has the weights of one of its halves. The files may lack the other half. */
typedef enum ith_vae_half { ITH_VAE_DECODER, ITH_VAE_ENCODER } ith_vae_half;

/* Reads and checks folder/config.json. */
ith_status ith_vae_config_read(ith_context *context, const char *folder, ith_vae_config *out);

/* Checks that the levels (picture sizes) can change their channels as they must. In Wan 2.1, doubling the size of a
 * picture halves its channels. In Wan 2.2, the shortcut around a level takes each channel equally often. where: the
 * beginning of the error message, the name of the configuration. */
ith_status ith_vae_config_check_levels(ith_context *context, const char *where, const ith_vae_config *config);
/* Checks the same, and that the numbers of channels and of blocks are within limits, so that no product of them
 * overflows. */
ith_status ith_vae_config_check_sizes(ith_context *context, const char *where, const ith_vae_config *config);
/* Sets the configuration of an autoencoder with canonical names in `store`. If folder/config.json describes an
 * autoencoder, it gives the sizes; otherwise it is a published one, with the widths of the tensors. */
ith_status ith_vae_config_find(ith_context *context, const char *folder, const ith_store *store, ith_vae_config *out);
/* Sets the configuration of the published autoencoder of Wan 2.2, or else of Wan 2.1. */
void ith_vae_config_published(bool wan_22, ith_vae_config *out);
/* The channels of the decoder's last convolution and of the encoder's first one: three colours for each pixel of a
 * square. */
static inline int64_t ith_vae_patch_numbers(const ith_vae_config *config)
{
    return 3 * config->patch * config->patch;
}

typedef struct ith_vae ith_vae;
/* Makes the layers of a half of the autoencoder from its open weight files. The autoencoder owns the store; a call that
 * fails closes it. types: the number types of its matrix products and convolutions; its attention is f32. */
ith_status ith_vae_open(ith_context *context, const ith_vae_config *config, ith_vae_half half, ith_store *store,
                        ith_operand_types types, ith_vae **out);
/* Checks that the weight files hold every tensor of this half, by name, type and shape, and no other tensor except
 * tensors of the other half. Reads headers only. The store stays the caller's. */
ith_status ith_vae_check(ith_context *context, const ith_vae_config *config, ith_vae_half half, ith_store *store);
/* Makes a half of an autoencoder with random weights of this type, for benchmarks. */
ith_status ith_vae_make_random(ith_context *context, const ith_vae_config *config, ith_vae_half half,
                               ith_operand_types types, ith_dtype type, ith_vae **out);
/* Sets *bytes to the memory of these random weights, which ith_vae_decode_bytes and ith_vae_encode_bytes do not
 * count. */
ith_status ith_vae_random_bytes(ith_context *context, const ith_vae_config *config, ith_vae_half half, ith_dtype type,
                                int64_t *bytes);
void ith_vae_free(ith_context *context, ith_vae **vae);

/* Rows [begin, end) of a picture. */
typedef struct ith_vae_span {
    int64_t begin, end;
} ith_vae_span;

/* The size of latents, and the rows of them that are decoded. */
typedef struct ith_vae_extent {
    int64_t frames, height, width;
    const ith_vae_span *band; /* NULL: all rows, as in encoding */
} ith_vae_extent;

/* The rows of latents that are decoded. */
static inline ith_vae_span ith_vae_band_of(const ith_vae_extent *extent)
{
    return extent->band ? *extent->band : (ith_vae_span){0, extent->height};
}

/* A function that gets a decoded frame, [height, width, 3] in [-1, 1], which is valid during the call. A result other
 * than ITH_OK ends the decoding. */
typedef ith_status (*ith_vae_frame_fn)(void *user, int64_t index, const float *frame, int64_t height, int64_t width);
/* Decodes latents [z_dim, frames, height, width], normalised as the DiT leaves them, into stride_time (frames - 1) + 1
 * frames. Nothing is allocated between the first frame and the last.
 *
 * on_frame gets only the rows of a frame that belong to the band, which has at least one row of the latents. They have
 * the same bits as in a whole frame. The layers before the first level are computed for all rows. At each level, some
 * rows above and below the band are computed too, because later convolutions read them: at the first level of the
 * published autoencoder up to 14 rows on each side.
 *
 * If the context has a device that decodes, it computes whole frames (vae_device.h).
 *
 * load_seconds (NULL: not wanted): the time of packing the weights, before the first frame, is added to it. */
ith_status ith_vae_decode(ith_context *context, const ith_vae *vae, const float *latents, const ith_vae_extent *extent,
                          ith_vae_frame_fn on_frame, void *user, double *load_seconds);
/* Sets *bytes to the peak memory of opening the autoencoder and decoding, besides the mapped files. extent->frames does
 * not matter, here and in the other functions that count bytes. */
ith_status ith_vae_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                const ith_vae_extent *extent, int64_t *bytes);
/* Sets *bytes to the memory that decoding whole frames takes on the context's device, without the scratch memory of the
 * library of convolutions; 0 if the context has no device that decodes. */
ith_status ith_vae_decode_device_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                       const ith_vae_extent *extent, int64_t *bytes);
/* Lists the work of decoding. */
ith_status ith_vae_decode_list(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                               const ith_vae_extent *extent, const ith_work_list *list);

/* A function that writes rows [row, row + count) of frame `frame` of a video, [count, width, 3] in [-1, 1]. It is asked
 * for some rows of one frame or of two neighbouring frames, then for the next rows of the same frames. A result other
 * than ITH_OK ends the encoding. */
typedef ith_status (*ith_vae_rows_fn)(void *user, int64_t frame, int64_t row, int64_t count, float *rows);
/* Encodes a video of stride_time (frames - 1) + 1 frames, [height stride_space, width stride_space, 3], into latents
 * [z_dim, frames, height, width], normalised as the DiT takes them: (mean of the encoder - mean) / std. Nothing is
 * allocated between the first frame and the last. load_seconds: as ith_vae_decode. */
ith_status ith_vae_encode(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                          ith_vae_rows_fn give_rows, void *user, float *latents, double *load_seconds);
/* Sets *bytes to the peak memory of opening the autoencoder and encoding, besides the mapped files and the latents. */
ith_status ith_vae_encode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                const ith_vae_extent *extent, int64_t *bytes);
/* Lists the work of encoding. */
ith_status ith_vae_encode_list(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                               const ith_vae_extent *extent, const ith_work_list *list);

#endif
