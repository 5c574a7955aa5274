/* SPDX-License-Identifier: Apache-2.0 */
/* The members of ith_dit_workspace: the buffers and attention plans of one rank. */
#ifndef ITH_WAN_DIT_WORKSPACE_H
#define ITH_WAN_DIT_WORKSPACE_H

#include "../../kernels/rowops.h"
#include "dit_weights.h"

/* The most rows that a stage of the DiT processes together. They are enough for matrix products at full speed, and few
 * enough that the wide rows of the feed-forward network take little memory compared with x. */
#define ITH_DIT_STRIP 2048

struct ith_dit_workspace {
    const ith_dit *dit;
    const ith_dit_text *text;
    const ith_rowops *ops;
    ith_dit_shape shape;
    ith_dtype type;             /* number type of q, k, v and o */
    int64_t begin, share, rows; /* first token and number of tokens of this rank; rows = batch * share */
    int64_t strip;              /* rows that a stage processes together, at most ITH_DIT_STRIP */
    int64_t keys;               /* number of cross-attention keys in each batch entry, as cross_plan expects */
    int threads;
    ith_linear_workspace linears;
    ith_plan *self_plan, *cross_plan;
    float *x;               /* [rows, dim], the residual stream */
    void *qkv;              /* [rows, 3 dim]; later [rows, dim], the q of cross-attention */
    void *o;                /* [rows, dim], the output of an attention */
    float *narrow;          /* [strip, dim], input or output of a linear layer */
    float *wide;            /* [strip, widest row]: hidden rows of the FFN, or q, k, v before rounding to bf16 */
    float *cosines, *sines; /* [share, head_dim / 2]: cosines and sines of RoPE's angles for this rank's tokens */
    float *sinusoid;        /* [batch, freq_dim]: the sinusoidal embedding of the time steps */
    float *e, *e_silu;      /* [batch, dim]: the time embedding e, and silu(e) */
    float *e0;              /* [batch, 6 dim]: shifts, scales, gates from the time step, without a layer's table */
    float *modulation;      /* [batch, 6, dim]: shifts, scales and gates of the current layer; later [batch, 2, dim] */
    void *padded;           /* [batch, keys, 2 dim]: a layer's k and v, if the prompts have fewer keys than the plan */
    float *padded_bias;     /* [batch, keys]: biases of the prompts' keys; -infinity for keys beyond a prompt's end */
    ith_span shown;         /* the part of the progress that the next pass accounts for */
    ith_dit_watch_fn watch; /* gets the output of every stage, for tests; NULL: there is none */
    void *watch_user;
};

#endif
