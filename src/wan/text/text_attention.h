/* SPDX-License-Identifier: Apache-2.0 */
/* The self-attention of umT5: no scale, and a bias learnt for each head and each bucket of distances. */
#ifndef ITH_WAN_TEXT_ATTENTION_H
#define ITH_WAN_TEXT_ATTENTION_H

#include "../../base/arena.h"
#include "text_config.h"

/* Arrays and plan of the text encoder's attention, for texts of one length. All layers use the same arrays. */
typedef struct ith_text_attention {
    int64_t heads, head_dim, count;
    ith_plan *plan;
    int64_t *buckets; /* [2 count - 1]: the bucket of distance d, at index d + count - 1 */
    float *lines;     /* [heads, 2 count - 1]: the bias of distance d, at index d + count - 1 */
    float *bias;      /* [heads, count, count]: the additive mask of the attention */
} ith_text_attention;

/* The problem that the plan of the attention solves, for texts of `count` tokens. */
ith_attn_problem ith_text_attention_problem(const ith_text_config *config, int64_t count);
/* Lays out the arrays for texts of `count` tokens in one allocation (`arena`). If the arena has no memory yet, it only
 * counts the bytes. */
void ith_text_attention_lay_out(const ith_text_config *config, int64_t count, ith_arena *arena,
                                ith_text_attention *attention);
/* Fills in the buckets of all distances, and makes the attention plan. ith_text_attention_lay_out must have set the
 * arrays. */
ith_status ith_text_attention_open(ith_context *context, const ith_text_config *config, ith_text_attention *attention);
void ith_text_attention_close(ith_text_attention *attention);
/* Sets *bytes to the memory that the plan will hold for texts of `count` tokens. */
ith_status ith_text_attention_plan_bytes(ith_context *context, const ith_text_config *config, int64_t count,
                                         int64_t *bytes);
/* Computes o = softmax(q k^T + bias) v for every head, and overwrites q with o. qkv: [count, 3, heads, head_dim], the
 * rows of q, k and v side by side; table: [buckets, heads]. */
ith_status ith_text_attention_apply(const ith_text_attention *attention, float *qkv, const float *table);

#endif
