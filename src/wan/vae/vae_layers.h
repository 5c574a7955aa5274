/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the decoder, made for one size of picture. They take one frame at a time, [height, width, channels] in
 * f32; what a causal convolution must remember of earlier frames stays in its ring. The frame under way lies in
 * work->x. */
#ifndef ITH_WAN_VAE_LAYERS_H
#define ITH_WAN_VAE_LAYERS_H

#include "../../base/observer.h"
#include "../../linear/conv.h"
#include "../../linear/linear.h"
#include "../../kernels/rowops.h"
#include "vae_weights.h"

/* What the layers of one decoding share. */
typedef struct ith_vae_work {
    ith_context *context;
    const ith_rowops *rowops;
    ith_operand_types types;
    float *x; /* the frame under way: main, or side after a residual block that changes the channels */
    float *main, *side;
    char *temp;         /* within a layer */
    char *conv_scratch; /* for the largest need of any convolution */
    int64_t conv_scratch_bytes;
    float *lines; /* of each thread, line_floats of it */
    int64_t line_floats;
    int64_t packed_bytes, weight_bytes; /* of the weights in their file: so far, and all */
    /* How far the latent frame is whose pictures are being made. */
    ith_span shown;                     /* of the pictures; its end is never shown before the last one is there */
    int64_t shown_most;                 /* what may be claimed while the next picture is not there */
    double operations, operations_done; /* of the convolutions */
} ith_vae_work;

/* A convolution over its frame and the two before it; zeros before the first. */
typedef struct ith_vae_causal {
    ith_conv *conv;
    ith_conv_shape shape;
    char *ring; /* [ITH_VAE_HISTORY][height, width, in] */
    int64_t newest;
} ith_vae_causal;

typedef struct ith_vae_residual_layer {
    const ith_vae_residual *weights;
    ith_vae_causal conv1, conv2;
    ith_linear *shortcut; /* NULL: x itself */
} ith_vae_residual_layer;

typedef struct ith_vae_attention_layer {
    const float *norm;
    ith_linear *qkv, *proj;
    ith_plan *plan;
    int64_t pixels, channels;
} ith_vae_attention_layer;

/* ith_conv_run in the scratch memory of work, counted and shown. */
ith_status ith_vae_conv_run(ith_vae_work *work, ith_conv *conv, const ith_conv_shape *shape, const void *ring,
                            int64_t newest, float *dst);
/* Convolutions by themselves: filter over pictures of this size. Its scratch need is counted in work. */
ith_conv_shape ith_vae_conv_shape(const ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                                  bool adds);
ith_status ith_vae_conv_create(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               bool adds, ith_conv **out);
ith_status ith_vae_linear_create(ith_vae_work *work, const ith_vae_filter *filter, ith_linear **out);

ith_status ith_vae_causal_create(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                                 bool adds, ith_vae_causal *out);
void ith_vae_causal_free(ith_vae_work *work, ith_vae_causal *causal);
/* Where the next frame goes, in place of the oldest. */
void *ith_vae_causal_next(ith_vae_causal *causal);
ith_status ith_vae_causal_run(ith_vae_work *work, ith_vae_causal *causal, float *dst);

ith_status ith_vae_residual_create(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   ith_vae_residual_layer *out);
void ith_vae_residual_free(ith_vae_work *work, ith_vae_residual_layer *layer);
ith_status ith_vae_residual_run(ith_vae_work *work, ith_vae_residual_layer *layer);

ith_status ith_vae_attention_create(ith_vae_work *work, const ith_vae *vae, int64_t pixels,
                                    ith_vae_attention_layer *out);
void ith_vae_attention_free(ith_vae_work *work, ith_vae_attention_layer *layer);
/* x += proj(attention(qkv(norm(x)))): one head, every pixel attends to every other. */
ith_status ith_vae_attention_run(ith_vae_work *work, ith_vae_attention_layer *layer);
/* Of work->temp. */
int64_t ith_vae_attention_temp_bytes(int64_t pixels, int64_t channels);

/* silu(norm(x)) for each of the pixels, as an operand of a convolution. */
void ith_vae_norm_silu(const ith_vae_work *work, void *operand, const float *x, const float *gamma, int64_t pixels,
                       int64_t channels);
/* The numbers of x themselves, as an operand. */
void ith_vae_operand(const ith_vae_work *work, void *operand, const float *x, int64_t count);
/* Every pixel four times, in a 2 x 2 square; pixels of x lie `stride` numbers apart. */
void ith_vae_upsample(const ith_vae_work *work, void *operand, const float *x, int64_t stride, int64_t height,
                      int64_t width, int64_t channels);

#endif
