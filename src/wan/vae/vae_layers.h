/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the decoder for one size of picture. They take one frame at a time, [height, width, channels] in f32;
 * each convolution over time keeps the latest frames of its input in a ring. The current frame is work->x. */
#ifndef ITH_WAN_VAE_LAYERS_H
#define ITH_WAN_VAE_LAYERS_H

#include "../../base/observer.h"
#include "../../linear/conv.h"
#include "../../linear/linear.h"
#include "vae_weights.h"

#define ITH_VAE_MOST_LINEARS (ITH_VAE_MOST_LEVELS + 3)

/* A product of every pixel by a matrix. */
typedef struct ith_vae_linear {
    const ith_vae_filter *filter;
    int64_t pixels;
    ith_linear *linear;
} ith_vae_linear;

typedef struct ith_vae_conv {
    const ith_vae_filter *filter;
    const float *norm; /* gamma of the norm and silu before it; NULL: there is none */
    ith_conv conv;
    char *ring; /* [filter->frames][height, width, in] */
    int64_t newest;
    int64_t first_times, times; /* how often it is applied for the first latent frame, and for a later one */
    ith_vae_linear *shortcut;   /* of the residual block that begins here; NULL: x itself */
} ith_vae_conv;

/* What the layers of one decoding share. */
typedef struct ith_vae_work {
    ith_context *context;
    const ith_rowops *rowops;
    ith_operand_types types;
    ith_status status; /* the first failure while layers are added */

    ith_vae_conv *convs; /* in the order of the computation */
    int64_t conv_count;
    ith_vae_linear linears[ITH_VAE_MOST_LINEARS];
    int64_t linear_count;
    ith_linear_set *linear_set;
    ith_linear_workspace linear_workspace;

    float *x;           /* the current frame: main, or side after a shortcut */
    float *main, *side; /* two buffers of a frame */
    char *temp;         /* scratch memory of the current layer */
    char *conv_scratch; /* scratch memory of the current convolution */
    float *lines;       /* [threads][line_floats]: normalised pixels before they are rounded to bf16 */
    int64_t line_floats;

    /* Progress of the latent frame that is being decoded. */
    ith_span shown;
    int64_t shown_most;                 /* the most that is shown before the caller has the next picture */
    double operations, operations_done; /* of all convolutions of the latent frame */
} ith_vae_work;

/* The next convolution, over pictures of this size, applied `times` times for each latent frame after the first. */
ith_vae_conv *ith_vae_conv_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               bool adds, int64_t times);
ith_vae_linear *ith_vae_linear_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t pixels);
/* A residual block: two convolutions, of which the first is returned. */
ith_vae_conv *ith_vae_residual_add(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   int64_t times);

/* Puts silu(norm(x)), or x if there is no norm, into the ring as the newest frame. */
void ith_vae_conv_take(const ith_vae_work *work, ith_vae_conv *conv, const float *x);
/* Puts x at twice its height and width into the ring; its pixels are `stride` numbers apart. */
void ith_vae_conv_take_doubled(const ith_vae_work *work, ith_vae_conv *conv, const float *x, int64_t stride);
/* dst = the convolution of the frames in the ring; dst += it, if it adds. */
ith_status ith_vae_conv_apply(ith_vae_work *work, ith_vae_conv *conv, float *dst);
ith_status ith_vae_linear_apply(const ith_vae_work *work, const ith_vae_linear *layer, const float *x, float *y);
/* work->x = x + conv2(silu(norm2(conv1(silu(norm1(x)))))), or shortcut(x) + the same. */
ith_status ith_vae_residual_apply(ith_vae_work *work, ith_vae_conv *convs);

/* The attention between the first two residual blocks, over the pixels of a latent frame. */
typedef struct ith_vae_attention {
    const float *norm;
    ith_vae_linear *qkv, *proj;
    ith_plan *plan;
} ith_vae_attention;

void ith_vae_attention_add(ith_vae_work *work, const ith_vae *vae, int64_t pixels, ith_vae_attention *attention);
ith_status ith_vae_attention_plan(const ith_vae_work *work, ith_vae_attention *attention);
/* *bytes: memory that the plan will hold. */
ith_status ith_vae_attention_plan_bytes(const ith_vae_work *work, const ith_vae_attention *attention, int64_t *bytes);
/* work->x += proj(attention(qkv(norm(x)))): one head, and every pixel attends to every pixel. */
ith_status ith_vae_attention_apply(ith_vae_work *work, ith_vae_attention *attention);
/* Bytes of work->temp that it needs. */
int64_t ith_vae_attention_temp_bytes(const ith_vae_attention *attention);

#endif
