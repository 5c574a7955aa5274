/* SPDX-License-Identifier: Apache-2.0 */
/* The self-attention of umT5: no scale, and a bias learnt for each head and each bucket of distances. */
#ifndef ITH_WAN_TEXT_ATTENTION_H
#define ITH_WAN_TEXT_ATTENTION_H

#include "../../base/arena.h"
#include "text_encoder.h"

/* The bucket of a key that is `distance` = key - query tokens away, 0 <= bucket < buckets. */
int64_t ith_text_bucket(int64_t distance, int64_t buckets, int64_t max_distance);

/* Memory and plan of the attention for texts of one length; all layers use it in turn. */
typedef struct ith_text_attention {
    int64_t heads, count;
    ith_plan *plan;
    int64_t *buckets; /* [2 count - 1]: the bucket of distance d is at d + count - 1 */
    float *lines;     /* [heads, 2 count - 1]: the biases of these distances */
    float *bias;      /* [heads, count, count] */
} ith_text_attention;

void ith_text_attention_lay_out(const ith_text_config *config, int64_t count, ith_arena *arena,
                                ith_text_attention *attention);
/* Makes the plan. The arena must have its memory. */
ith_status ith_text_attention_open(ith_context *context, const ith_text_config *config, ith_text_attention *attention);
void ith_text_attention_close(ith_text_attention *attention);
/* Sets *bytes to the memory of the plan. */
ith_status ith_text_attention_plan_bytes(ith_context *context, const ith_text_config *config, int64_t count,
                                         int64_t *bytes);
/* o = softmax(q k^T + bias) v for every head; all [count, heads, head_dim]. table: [buckets, heads]. */
ith_status ith_text_attention_apply(const ith_text_attention *attention, const float *q, const float *k, const float *v,
                                    const float *table, float *o);

#endif
