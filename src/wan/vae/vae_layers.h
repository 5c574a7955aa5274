/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the autoencoder for one size of picture. They process one frame at a time, or a pair of frames, a strip
 * of rows at a time. Each convolution over time keeps the two latest frames of its input. */
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

/* Rows of the frames that pass through the layers together: [slots][rows][width][channels] in f32. Row r of a frame
 * lies at place (r + skipped) % rows, so there may be fewer rows than a frame has. Slots are the same as in a
 * convolution (conv.h): if frames come in pairs, the first frame of a video has slot 1. */
typedef struct ith_vae_rows {
    float *x;
    int64_t slots, rows, width, channels, skipped;
} ith_vae_rows;

static inline float *ith_vae_row(const ith_vae_rows *r, int64_t slot, int64_t row)
{
    return r->x + (slot * r->rows + (row + r->skipped) % r->rows) * r->width * r->channels;
}

/* The number of rows from row `row` on that are contiguous. */
static inline int64_t ith_vae_rows_together(const ith_vae_rows *r, int64_t row)
{
    return r->rows - (row + r->skipped) % r->rows;
}

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
    int64_t first_times, times; /* number of times it is computed for the first latent frame, and for a later one */
    ith_vae_linear *shortcut;   /* the shortcut of the residual block that begins with this convolution; NULL: none */
} ith_vae_conv;

/* The attention over the pixels of a latent frame. */
typedef struct ith_vae_attention {
    const float *norm;
    ith_vae_linear *qkv, *proj;
    ith_plan *plan;
} ith_vae_attention;

/* The layers in the middle, at the size of the latents: a residual block, the attention, a residual block. */
typedef struct ith_vae_middle {
    int64_t pixels; /* height * width of a latent frame */
    ith_vae_rows x; /* the whole frame that they change in place */
    ith_vae_conv *before, *after;
    ith_vae_attention attention;
} ith_vae_middle;

/* The state that all layers of an encoder or a decoder share. */
typedef struct ith_vae_work {
    ith_context *context;
    const ith_vae *vae;
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
    ith_vae_linear *quant; /* the linear layer of the latents */
    ith_vae_middle middle;

    void (*lay_out_frames)(void *owner, ith_arena *arena); /* lays out the frames of `owner`, and `temp` */
    void *owner;                                           /* the encoder or the decoder */
    int64_t owner_bytes;                                   /* bytes of its allocation */
    char *memory;       /* one allocation for all buffers and packed weights (vae_memory.h) */
    char *rows;         /* start of the rows of all convolutions; earlier, this memory serves to pack weights */
    char *temp;         /* scratch memory of the layers at the size of the latents */
    char *conv_scratch; /* scratch memory of the current convolution */
    float *lines;       /* [threads][line_floats]: normalised pixels before they are rounded to bf16 */
    int64_t line_floats;

    /* Progress of the current latent frame. */
    ith_span shown;
    int64_t shown_most;                 /* no more progress than this is shown until the caller has the next frame */
    double operations, operations_done; /* operations of all convolutions: for the latent frame, and done so far */
} ith_vae_work;

/* Computes z = latents * std + mean for latent frame `frame`. latents: [z_dim, frames, pixels]; z: [pixels, z_dim]. */
void ith_vae_unnormalise(const ith_vae_config *config, const float *latents, int64_t frames, int64_t frame,
                         int64_t pixels, float *z);

/* Appends a convolution over pictures of this size to the list of layers. Its input comes in strips of at most `strip`
 * rows. times: number of times it is computed for each latent frame after the first. pairs: whether its frames come in
 * pairs. */
ith_vae_conv *ith_vae_conv_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t height, int64_t width,
                               int64_t strip, int64_t times, bool pairs);
/* Appends a convolution of this shape. The filter sets its channels and its kernel. */
ith_vae_conv *ith_vae_conv_add_shape(ith_vae_work *work, const ith_vae_filter *filter, ith_conv_shape shape,
                                     int64_t times);
/* Appends a linear layer for pictures of `pixels` pixels to the list of layers. */
ith_vae_linear *ith_vae_linear_add(ith_vae_work *work, const ith_vae_filter *filter, int64_t pixels);
/* The number of rows that pass through the layers together, for pictures of this size; even, unless it is `height`.
 * Every thread of the calling thread's team gets some blocks of pixels in each strip. */
int64_t ith_vae_strip(int64_t height, int64_t width);
/* Appends the two convolutions of a residual block, and its shortcut if it has one, to the lists of layers.
 * Returns the first convolution; the second follows it in the array. Frames come in pairs if times > 1. */
ith_vae_conv *ith_vae_residual_add(ith_vae_work *work, const ith_vae_residual *weights, int64_t height, int64_t width,
                                   int64_t times);

/* Makes `count` pixels, from column `first` of row `row` on, the input of a convolution: silu(norm(x)), or x if the
 * convolution has no norm. */
void ith_vae_conv_put(const ith_vae_work *work, const ith_vae_conv *conv, int64_t slot, int64_t row, int64_t first,
                      int64_t count, const float *x);
/* Makes a pixel x of a picture half as high and half as wide the input of a convolution: a square of 2 x 2 equal
 * pixels. */
void ith_vae_conv_put_doubled(const ith_vae_work *work, const ith_vae_conv *conv, int64_t slot, int64_t row,
                              int64_t column, const float *x);
/* Computes the rows of a convolution that can be computed when its input is complete up to row `taken`, and gives them
 * to `output`. */
ith_status ith_vae_conv_advance(ith_vae_work *work, ith_vae_conv *conv, int64_t taken, const ith_conv_output *output);
/* Gives a convolution the rows of x before row `taken` that it does not have yet, in strips, and computes the rows that
 * can be computed. */
ith_status ith_vae_conv_feed(ith_vae_work *work, ith_vae_conv *conv, const ith_vae_rows *x, int64_t taken,
                             const ith_conv_output *output);
/* The function `take` of an ith_conv_output whose `user` is an ith_vae_rows: overwrites its pixels. */
void ith_vae_rows_store(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels);

/* Applies a linear layer to `pixels` pixels: y = x w^T + b. */
ith_status ith_vae_linear_apply(const ith_vae_work *work, const ith_vae_linear *layer, int64_t pixels, const float *x,
                                float *y);
/* Begins the next frame or pair in a residual block. */
void ith_vae_residual_begin(ith_vae_conv *convs);
/* Applies a residual block to the rows of x before row `taken` that it does not have yet:
 *
 *   y = s + conv2(silu(norm2(conv1(silu(norm1(x))))))
 *
 * where s is shortcut(x) if the block has a shortcut, otherwise x. Without a shortcut x and y may be the same.
 * Afterwards the first convs[1].conv.made rows of y are complete. If there is no shortcut and x is not y, later calls
 * read rows of x from the first incomplete row of y on. */
ith_status ith_vae_residual_feed(ith_vae_work *work, ith_vae_conv *convs, const ith_vae_rows *x, const ith_vae_rows *y,
                                 int64_t taken);

/* Appends the layers in the middle, for latent frames of this size, to the list of layers. */
void ith_vae_middle_add(ith_vae_work *work, int64_t height, int64_t width);
/* Applies them to the frame in work->middle.x, in place. */
ith_status ith_vae_middle_apply(ith_vae_work *work);

/* The problem that the plan of the attention solves. */
ith_attn_problem ith_vae_attention_problem(const ith_vae_attention *attention);
/* Makes the plan of the attention, which the caller destroys. */
ith_status ith_vae_attention_plan(const ith_vae_work *work, ith_vae_attention *attention);
/* Sets *bytes to the memory that the plan of the attention will hold. */
ith_status ith_vae_attention_plan_bytes(const ith_vae_work *work, const ith_vae_attention *attention, int64_t *bytes);
/* The bytes of work->temp that the attention needs. */
int64_t ith_vae_attention_temp_bytes(const ith_vae_attention *attention);

#endif
