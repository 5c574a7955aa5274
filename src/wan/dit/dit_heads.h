/* SPDX-License-Identifier: Apache-2.0 */
/* The output of the linear layers that make q, k and v of an attention. q and k get RMSNorm over all heads and RoPE,
 * and all numbers are rounded to the number type of the attention. */
#ifndef ITH_WAN_DIT_HEADS_H
#define ITH_WAN_DIT_HEADS_H

#include "../../kernels/rowops.h"
#include "dit_weights.h"

/* Rows of `parts` vectors of dim numbers: q, k and v, or some of them. The first `normed` vectors get RMSNorm, and RoPE
 * if there are tables. */
typedef struct ith_dit_heads {
    const ith_dit *dit;
    const ith_rowops *ops;
    void *out; /* [rows, parts, dim], in the number type of attention */
    int64_t parts, normed;
    const float *scales[2];       /* [dim] each: the scales of the RMSNorm of the first and of the second vector */
    const float *cosines, *sines; /* [tokens, head_dim / 2]: row i is token i % tokens; NULL: no RoPE */
    int64_t tokens;
    float *unrounded; /* [strip, normed, dim]: vectors before their norm; NULL if attention takes f32 */
    int64_t strip;    /* ith_linear_strip of the linear workspace */
} ith_dit_heads;

/* The output of a linear layer. Each row of its y holds the row's vectors side by side. `heads` must outlive its
 * use. */
ith_linear_output ith_dit_heads_output(ith_dit_heads *heads);

#endif
