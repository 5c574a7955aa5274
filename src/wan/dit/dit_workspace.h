/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's buffers and plans. */
#ifndef ITH_WAN_DIT_WORKSPACE_H
#define ITH_WAN_DIT_WORKSPACE_H

#include "../../kernels/rowops.h"
#include "dit_weights.h"

/* Most rows of a strip. They are enough for products at full speed, and few enough that the wide rows of the
 * feed-forward layer take little memory compared with x. */
#define ITH_DIT_STRIP 2048

struct ith_dit_workspace {
    const ith_dit *dit;
    const ith_dit_text *text;
    const ith_rowops *ops;
    ith_dit_shape shape;
    ith_dtype type;             /* of q, k, v and o */
    int64_t begin, share, rows; /* tokens of this rank; rows = batch * share */
    int64_t strip;              /* at most ITH_DIT_STRIP */
    int64_t keys;               /* of the cross attention's plan */
    int threads;
    ith_linear_workspace linears;
    ith_plan *self_plan, *cross_plan;
    float *x;               /* [rows, dim], the residual stream */
    void *qkv;              /* [rows, 3 dim]; the cross attention's q as [rows, dim] */
    void *o;                /* [rows, dim] */
    float *narrow;          /* [strip, dim] */
    float *wide;            /* [strip, the most of ffn_dim and, before they are rounded, q, k, v] */
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

#endif
