/* SPDX-License-Identifier: Apache-2.0 */
/* What ith_dit_workspace holds: one rank's buffers and plans. */
#ifndef ITH_WAN_DIT_WORKSPACE_H
#define ITH_WAN_DIT_WORKSPACE_H

#include "../../kernels/rowops.h"
#include "dit_weights.h"

/* Rows that pass through a run of layers together: enough for products at full speed, few enough that what is wide
 * (the feed-forward layer) stays small beside the rows' own state. */
#define ITH_DIT_CHUNK 2048

struct ith_dit_workspace {
    const ith_dit *dit;
    const ith_dit_text *text;
    const ith_rowops *ops;
    ith_dit_shape shape;
    ith_dtype type;             /* of q, k, v and o */
    int64_t begin, share, rows; /* tokens of this rank; rows = batch * share */
    int64_t chunk;              /* at most ITH_DIT_CHUNK */
    int64_t keys;               /* of the cross attention's plan */
    ith_plan *self_plan, *cross_plan;
    float *x;               /* [rows, dim], the residual stream */
    void *qkv;              /* [rows, 3 dim]; the cross attention's q as [rows, dim] */
    void *o;                /* [rows, dim] */
    float *narrow;          /* [chunk, dim] */
    float *wide;            /* [chunk, wide_size] */
    float *cosines, *sines; /* [share, head_dim / 2] */
    float *sinusoid;        /* [batch, freq_dim] */
    float *e, *e_silu;      /* [batch, dim] */
    float *e0;              /* [batch, 6 dim] */
    float *modulation;      /* [batch, 6, dim] of the layer, [batch, 2, dim] of the head */
    void *padded;           /* [batch, keys, 2 dim]: a layer of a text with fewer keys than the plan */
    float *padded_bias;     /* [batch, keys] of that text */
    ith_span shown;
    ith_dit_watch_fn watch;
    void *watch_user;
};

/* Width of the wide buffer: what the feed-forward layer needs, and q, k, v in f32 before they are rounded. */
static inline int64_t ith_dit_wide(const ith_dit_config *config, ith_dtype type)
{
    int64_t before_rounding = type == ITH_F32 ? config->dim : 3 * config->dim;
    return config->ffn_dim > before_rounding ? config->ffn_dim : before_rounding;
}

static inline int64_t ith_dit_tokens(const ith_dit_shape *shape)
{
    return shape->frames * (shape->height / 2) * (shape->width / 2);
}

/* What is attended to: this rank's queries, keys and values in one buffer, [rows, 3 dim]; and the text, whose keys and
 * values are on every rank, so that nothing is sent. */
ith_attn_problem ith_dit_self_problem(const ith_dit_config *config, ith_dtype type, const ith_dit_shape *shape,
                                      int64_t share);
ith_attn_problem ith_dit_cross_problem(const ith_dit_config *config, ith_dtype type, const ith_dit_shape *shape,
                                       int64_t keys);
ith_attn_options ith_dit_cross_options(const ith_attn_options *options);

#endif
