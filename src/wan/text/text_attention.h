/* SPDX-License-Identifier: Apache-2.0 */
/* The self-attention of umT5: no scale, and a bias learnt for each head and bucket of distances. */
#ifndef ITH_WAN_TEXT_ATTENTION_H
#define ITH_WAN_TEXT_ATTENTION_H

#include "text_encoder.h"

/* The bucket of a key that lies `distance` = key - query tokens away, 0 <= bucket < buckets. */
int64_t ith_text_bucket(int64_t distance, int64_t buckets, int64_t max_distance);

/* The attention of texts of one length, in every layer. */
typedef struct ith_text_attention ith_text_attention;
ith_status ith_text_attention_create(ith_context *context, const ith_text_config *config, int64_t count,
                                     ith_text_attention **out);
void ith_text_attention_free(ith_context *context, ith_text_attention **attention);
/* o = softmax(q k^T + bias) v for every head; all [count, heads, head_dim]. table: [buckets, heads]. */
ith_status ith_text_attention_run(ith_text_attention *attention, const float *q, const float *k, const float *v,
                                  const float *table, float *o);
/* *bytes: what it holds. */
ith_status ith_text_attention_bytes(ith_context *context, const ith_text_config *config, int64_t count, int64_t *bytes);

#endif
