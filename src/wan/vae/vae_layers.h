/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the decoder for one size of picture. They process one frame at a time, [height, width, channels] in
 * f32, a strip of rows at a time. Each convolution over time keeps the two latest frames of its input. work->x points
 * to the current frame. */
#ifndef ITH_WAN_VAE_LAYERS_H
#define ITH_WAN_VAE_LAYERS_H

#include "../../base/observer.h"
#include "../../kernels/rowops.h"
#include "../../linear/conv.h"
#include "../../linear/linear.h"
#include "vae_weights.h"

#define ITH_VAE_MOST_LINEARS (ITH_VAE_MOST_LEVELS + 3)

/* Names of stages in the trace that belong to no level. */
#define ITH_VAE_ATTENTION "attention"
#define ITH_VAE_NORMS "norms"

/* A linear layer that is applied to every pixel of a picture. */
typedef struct ith_vae_linear {
    const ith_vae_filter *filter;
    const char *stage; /* name of its time intervals in the trace; NULL: it is part of another interval */
    int64_t pixels;
    ith_linear *linear;
} ith_vae_linear;

/* A convolution. */
typedef struct ith_vae_conv {
    const ith_vae_filter *filter;
    const char *stage; /* name of its time intervals in the trace: its level */
    const float *norm; /* gamma of the norm that, with silu, comes before the convolution; NULL: no norm, no silu */
    ith_conv conv;
    int64_t first_times, times; /* how often it is computed for the first latent frame, and for each later one */
    ith_vae_linear *shortcut;   /* the shortcut of the residual block that begins with this convolution; NULL: none */
} ith_vae_conv;

/* The state that the layers of one decoder share. */
typedef struct ith_vae_work {
    ith_context *context;
    const ith_rowops *rowops;
    ith_operand_types types;
    ith_status status; /* the first failure while layers are added */
    const char *stage; /* stage of the layers that are being added */

    ith_vae_conv *convs; /* all convolutions, in the order of the computation */
    int64_t conv_count;
    ith_vae_linear linears[ITH_VAE_MOST_LINEARS];
    int64_t linear_count;
    ith_linear_set *linear_set;
    ith_linear_workspace linear_workspace;

    float *x;           /* the current frame */
    char *temp;         /* scratch memory of the layers at the size of the latents */
    char *conv_scratch; /* scratch memory of the current convolution */
    float *lines;       /* [threads][line_floats]: normalised pixels before they are rounded to bf16 */
    int64_t line_floats;

    /* Progress of the latent frame that is being decoded. */
    ith_span shown;
    int64_t shown_most;                 /* no more progress than this is shown until the caller has the next frame */
    double operations, operations_done; /* operations of all convolutions: for the latent frame, and done so far */
} ith_vae_work;

/* Appends a convolution over pictures of this size to the decoder's list of layers. Its input comes in strips of at
 * most `strip` rows. times: how often it is computed for each latent frame after the first. */
ith_vae_conv *ith_vae_conv_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               int64_t strip, int64_t times);
/* Appends a linear layer for pictures of `pixels` pixels to the decoder's list of layers. */
ith_vae_linear *ith_vae_linear_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t pixels);
/* The number of rows that pass through the layers together, for pictures of this size; even, unless it is `height`.
 * Every thread of the calling thread's team gets some blocks of pixels in each strip. */
int64_t ith_vae_strip(int64_t height, int64_t width);
/* Appends the two convolutions of a residual block, and its shortcut if it has one, to the decoder's lists of layers.
 * Returns the first convolution; the second follows it in the array. */
ith_vae_conv *ith_vae_residual_add(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   int64_t times);

/* Makes `count` pixels, from column `first` of row `row` on, the input of a convolution: silu(norm(x)), or x if the
 * convolution has no norm. */
void ith_vae_conv_put(const ith_vae_work *work, const ith_vae_conv *conv, int64_t row, int64_t first, int64_t count,
                      const float *x);
/* Converts numbers of type F32, or of the type of the convolution's input, to that type. */
void ith_vae_conv_convert(const ith_vae_work *work, const ith_vae_conv *conv, void *to, const void *x, ith_dtype type,
                          int64_t count);
/* Makes a pixel of a picture half as high and half as wide the input of a convolution: a square of 2 x 2 equal pixels.
 * x is the pixel, of a type that ith_vae_conv_convert takes. */
void ith_vae_conv_put_doubled(const ith_vae_work *work, const ith_vae_conv *conv, int64_t row, int64_t column,
                              const void *x, ith_dtype type);
/* Makes rows [begin, end) of the frame x the input of a convolution. */
void ith_vae_conv_put_rows(const ith_vae_work *work, const ith_vae_conv *conv, const float *x, int64_t begin,
                           int64_t end);
/* Computes the rows of a convolution that can be computed when its input is complete up to row `taken`, and gives them
 * to `output`. */
ith_status ith_vae_conv_advance(ith_vae_work *work, ith_vae_conv *conv, int64_t taken, const ith_conv_output *output);
/* Computes a convolution of the frame x and gives its rows to `output`. */
ith_status ith_vae_conv_apply(ith_vae_work *work, ith_vae_conv *conv, const float *x, const ith_conv_output *output);

/* A frame [height, width, channels] that takes the rows of a convolution. */
typedef struct ith_vae_frame {
    float *x;
    int64_t width, channels;
} ith_vae_frame;
/* The function `take` of an ith_conv_output whose `user` is an ith_vae_frame: overwrites pixels of the frame. */
void ith_vae_frame_store(void *user, int64_t row, int64_t first, int64_t count, const float *pixels);

/* Applies a linear layer to every pixel of x: y = x w^T + b. */
ith_status ith_vae_linear_apply(const ith_vae_work *work, const ith_vae_linear *layer, const float *x, float *y);
/* Applies a residual block: s + conv2(silu(norm2(conv1(silu(norm1(work->x)))))), where s is shortcut(work->x) if the
 * block has a shortcut, otherwise work->x. The result is work->x; it lies in `to` if the block has a shortcut,
 * otherwise in place. */
ith_status ith_vae_residual_apply(ith_vae_work *work, ith_vae_conv *convs, float *to);

/* The attention over the pixels of a latent frame. It comes between the first two residual blocks. */
typedef struct ith_vae_attention {
    const float *norm;
    ith_vae_linear *qkv, *proj;
    ith_plan *plan;
} ith_vae_attention;

/* Appends the linear layers of the attention, for latent frames of `pixels` pixels, to the decoder's list of layers. */
void ith_vae_attention_add(ith_vae_work *work, const ith_vae *vae, int64_t pixels, ith_vae_attention *attention);
/* The problem that the plan of the attention solves. */
ith_attn_problem ith_vae_attention_problem(const ith_vae_attention *attention);
/* Makes the plan of the attention, which the decoder destroys. */
ith_status ith_vae_attention_plan(const ith_vae_work *work, ith_vae_attention *attention);
/* Sets *bytes to the memory that the plan of the attention will hold. */
ith_status ith_vae_attention_plan_bytes(const ith_vae_work *work, const ith_vae_attention *attention, int64_t *bytes);
/* work->x += proj(attention(qkv(norm(x)))): one head, and every pixel attends to every pixel. */
ith_status ith_vae_attention_apply(ith_vae_work *work, ith_vae_attention *attention);
/* The bytes of work->temp that the attention needs. */
int64_t ith_vae_attention_temp_bytes(const ith_vae_attention *attention);

#endif
