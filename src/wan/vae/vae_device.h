/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder of the autoencoder on a device (kernels/device_conv.h), for latents of one size.
 *
 * The decoder on the processor (vae_decode.c) has the same layers, in the same order. A latent frame passes through
 * them as a whole: all frames that it has become at a level are computed by one call. Numbers that pass from layer to
 * layer by sums (x in vae_layers.h) are f32; operands of convolutions, and their results before they are added, have
 * one number type, F32 or BF16. The attention multiplies f32. */
#ifndef ITH_WAN_VAE_DEVICE_H
#define ITH_WAN_VAE_DEVICE_H

#include "../../base/arena.h"
#include "../../kernels/device_use.h"
#include "vae_weights.h"

/* A convolution, and the norm before it. */
typedef struct ith_vae_device_conv {
    const ith_vae_filter *filter;
    const float *norm;             /* gamma of the norm before the convolution, in memory of the host; NULL: none */
    int64_t frames, height, width; /* frames of y for a latent frame after the first, and their size */
    int64_t out;                   /* channels of y; conv_out has zeros behind the channels of its filter */
    /* On the device: */
    char *w;             /* [out][depth][kernel][kernel][in] */
    float *bias, *gamma; /* [out of the filter], [in] */
    /* x of a convolution with history, [2 + frames][height][width][in]. Its first two frames are the last two frames of
     * the latent frame before. Convolutions without history read ith_vae_device.scratch. */
    char *input;
} ith_vae_device_conv;

/* A residual block. */
typedef struct ith_vae_device_residual {
    ith_vae_device_conv *conv1, *conv2, *shortcut; /* shortcut NULL: x itself */
} ith_vae_device_residual;

/* A level, all at one picture size. */
typedef struct ith_vae_device_level {
    int64_t frames, height, width, in, out; /* frames before `time`; the size before `resample`; channels */
    int64_t repeats;                        /* of the shortcut around the level; 0: there is none */
    ith_vae_device_residual *residuals;
    ith_vae_device_conv *time, *resample; /* NULL: the level has none */
    float *begin, *end;                   /* x before and after the residual blocks, on the device; may be the same */
} ith_vae_device_level;

enum { ITH_VAE_DEVICE_MOST_RESIDUALS = 160 }; /* residual blocks of a decoder that is taken */

/* A decoder on a device, for latents of one size. */
typedef struct ith_vae_device {
    ith_context *context;
    const ith_vae *vae;
    const ith_device_use *use;
    const ith_device_convolutions *ops;
    ith_dtype type; /* of operands and results of convolutions */
    int64_t height, width;
    struct ith_device_convs *convs;
    struct ith_device_products *products; /* of the attention */
    struct ith_device_stream *stream;
    ith_vae_device_conv *quant, *in, *qkv, *proj, *out; /* qkv: its weights serve three products */
    ith_vae_device_residual before, after;              /* around the attention */
    ith_vae_device_level levels[ITH_VAE_MOST_LEVELS];
    ith_vae_device_residual residuals[ITH_VAE_DEVICE_MOST_RESIDUALS];
    int64_t residual_count;
    int64_t conv_scratch_bytes;
    void *memory; /* one allocation on the device, of all that follows */
    float *z;     /* a latent frame [pixels][z_dim], z * std + mean */
    /* Of the attention: [pixels][channels] each, but vt [channels][pixels]; logits [logit_rows][pixels]. */
    float *q, *k, *vt, *o, *logits;
    int64_t logit_rows;
    char *scratch; /* x of a convolution without history */
    char *y;       /* the result of a convolution */
    char *conv_scratch;
    float *rgb;
    float *pinned_z, *pinned_rgb[2]; /* in pinned memory of the host: z, and the frames of two latent frames */
    int64_t conv_count;
    ith_vae_device_conv conv[]; /* all convolutions, in the order of the computation */
} ith_vae_device;

/* Whether the context's device decodes. If it has a device that does not, sets *reason to the reason, otherwise to
 * NULL. */
bool ith_vae_device_serves(const ith_context *context, const char **reason);

/* Makes the layers for latents of this size, without memory on the device. */
ith_status ith_vae_device_create(ith_context *context, const ith_vae *vae, const ith_vae_extent *extent,
                                 ith_vae_device **out);
/* Takes the memory on the device, if enough is free, and uploads the weights. */
ith_status ith_vae_device_open(ith_vae_device *d);
void ith_vae_device_free(ith_vae_device **device);
/* Sets *bytes to the memory of the device that ith_vae_device_open takes without the scratch memory of the library of
 * convolutions, which is known when they are prepared. */
ith_status ith_vae_device_count(ith_vae_device *d, int64_t *bytes);
/* The bytes of the context's memory that decoding takes, besides the open autoencoder. */
int64_t ith_vae_device_host_bytes(const ith_vae_device *d);

/* Converts and uploads all filters, biases and norms, and waits for the copies. */
ith_status ith_vae_device_upload(ith_vae_device *d);
/* The bytes of the context's memory that ith_vae_device_upload takes for a while. */
int64_t ith_vae_device_upload_bytes(const ith_vae_device *d);

/* Waits for the stream. ITH_ERR_INTERRUPTED if the context is interrupted meanwhile. */
ith_status ith_vae_device_wait(const ith_vae_device *d);

/* As ith_vae_decode, on the context's device, which has convolutions. */
ith_status ith_vae_device_decode(ith_context *context, const ith_vae *vae, const float *latents,
                                 const ith_vae_extent *extent, ith_vae_frame_fn on_frame, void *user,
                                 double *load_seconds);
/* As ith_vae_decode_bytes: memory of the host. */
ith_status ith_vae_device_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                                       const ith_vae_extent *extent, int64_t *bytes);

/* The bytes of a pixel of `channels` numbers in the type of operands. */
static inline int64_t ith_vae_device_pixel_bytes(const ith_vae_device *d, int64_t channels)
{
    return channels * ith_dtype_bytes(d->type);
}

/* The sizes of a convolution that makes `frames` frames; x, w and y are NULL. */
static inline ith_device_conv ith_vae_device_describe(const ith_vae_device *d, const ith_vae_device_conv *c,
                                                      int64_t frames)
{
    return (ith_device_conv){.type = d->type,
                             .frames = frames,
                             .height = c->height,
                             .width = c->width,
                             .in = c->filter->in,
                             .out = c->out,
                             .depth = c->filter->frames,
                             .kernel = c->filter->kernel};
}

/* The frames of x before the first frame that belongs to y. */
static inline int64_t ith_vae_device_history(const ith_vae_device_conv *c)
{
    return c->filter->frames - 1;
}

#endif
