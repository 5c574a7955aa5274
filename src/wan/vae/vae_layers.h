/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the decoder for one size of picture. They process one frame at a time, [height, width, channels] in
 * f32. Each convolution over time keeps the latest frames of its input in a ring buffer. work->x points to the current
 * frame. */
#ifndef ITH_WAN_VAE_LAYERS_H
#define ITH_WAN_VAE_LAYERS_H

#include "../../base/observer.h"
#include "../../linear/conv.h"
#include "../../linear/linear.h"
#include "vae_weights.h"

#define ITH_VAE_MOST_LINEARS (ITH_VAE_MOST_LEVELS + 3)

/* A linear layer that is applied to every pixel of a picture. */
typedef struct ith_vae_linear {
    const ith_vae_filter *filter;
    int64_t pixels;
    ith_linear *linear;
} ith_vae_linear;

/* A convolution, and a ring buffer with the latest frames of its input. */
typedef struct ith_vae_conv {
    const ith_vae_filter *filter;
    const float *norm; /* gamma of the norm that, with silu, comes before the convolution; NULL: no norm, no silu */
    ith_conv conv;
    char *ring;                 /* [filter->frames][height, width, in]: ring buffer of the latest frames of the input */
    int64_t newest;             /* index of the newest frame in the ring buffer */
    int64_t first_times, times; /* how often it is computed for the first latent frame, and for each later one */
    ith_vae_linear *shortcut;   /* the shortcut of the residual block that begins with this convolution; NULL: none */
} ith_vae_conv;

/* The state that the layers of one decoder share. */
typedef struct ith_vae_work {
    ith_context *context;
    const ith_rowops *rowops;
    ith_operand_types types;
    ith_status status; /* the first failure while layers are added */

    ith_vae_conv *convs; /* all convolutions, in the order of the computation */
    int64_t conv_count;
    ith_vae_linear linears[ITH_VAE_MOST_LINEARS];
    int64_t linear_count;
    ith_linear_set *linear_set;
    ith_linear_workspace linear_workspace;

    float *x;           /* the current frame, in `main` or in `side` */
    float *main, *side; /* two buffers with room for a frame each */
    char *temp;         /* scratch memory of the current layer */
    char *conv_scratch; /* scratch memory of the current convolution */
    float *lines;       /* [threads][line_floats]: normalised pixels before they are rounded to bf16 */
    int64_t line_floats;

    /* Progress of the latent frame that is being decoded. */
    ith_span shown;
    int64_t shown_most;                 /* no more progress than this is shown until the caller has the next frame */
    double operations, operations_done; /* operations of all convolutions: for the latent frame, and done so far */
} ith_vae_work;

/* Appends a convolution over pictures of this size to the decoder's list of layers. adds: its result is added to the
 * destination. times: how often it is computed for each latent frame after the first. */
ith_vae_conv *ith_vae_conv_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               bool adds, int64_t times);
/* Appends a linear layer for pictures of `pixels` pixels to the decoder's list of layers. */
ith_vae_linear *ith_vae_linear_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t pixels);
/* Appends the two convolutions of a residual block, and its shortcut if it has one, to the decoder's lists of layers.
 * Returns the first convolution; the second follows it in the array. */
ith_vae_conv *ith_vae_residual_add(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   int64_t times);

/* Writes silu(norm(x)), or x if the convolution has no norm, into the convolution's ring buffer as the newest frame. */
void ith_vae_conv_take(const ith_vae_work *work, ith_vae_conv *conv, const float *x);
/* Writes x, enlarged to twice its height and width, into the convolution's ring buffer as the newest frame. The pixels
 * of x are `stride` numbers apart. */
void ith_vae_conv_take_doubled(const ith_vae_work *work, ith_vae_conv *conv, const float *x, int64_t stride);
/* Computes the convolution of the frames in its ring buffer. The result is added to dst if the convolution was made
 * with `adds`; otherwise it overwrites dst. */
ith_status ith_vae_conv_apply(ith_vae_work *work, ith_vae_conv *conv, float *dst);
/* Applies a linear layer to every pixel of x: y = x w^T + b. */
ith_status ith_vae_linear_apply(const ith_vae_work *work, const ith_vae_linear *layer, const float *x, float *y);
/* Applies a residual block: work->x = s + conv2(silu(norm2(conv1(silu(norm1(x)))))), where s is shortcut(x) if the
 * block has a shortcut, otherwise x. */
ith_status ith_vae_residual_apply(ith_vae_work *work, ith_vae_conv *convs);

/* The attention over the pixels of a latent frame. It comes between the first two residual blocks. */
typedef struct ith_vae_attention {
    const float *norm;
    ith_vae_linear *qkv, *proj;
    ith_plan *plan;
} ith_vae_attention;

/* Appends the linear layers of the attention, for latent frames of `pixels` pixels, to the decoder's list of layers. */
void ith_vae_attention_add(ith_vae_work *work, const ith_vae *vae, int64_t pixels, ith_vae_attention *attention);
/* Makes the plan of the attention, which the decoder destroys. */
ith_status ith_vae_attention_plan(const ith_vae_work *work, ith_vae_attention *attention);
/* Sets *bytes to the memory that the plan of the attention will hold. */
ith_status ith_vae_attention_plan_bytes(const ith_vae_work *work, const ith_vae_attention *attention, int64_t *bytes);
/* work->x += proj(attention(qkv(norm(x)))): one head, and every pixel attends to every pixel. */
ith_status ith_vae_attention_apply(ith_vae_work *work, ith_vae_attention *attention);
/* The bytes of work->temp that the attention needs. */
int64_t ith_vae_attention_temp_bytes(const ith_vae_attention *attention);

#endif
