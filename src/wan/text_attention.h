/* The self-attention of umT5: no scale, and a bias learnt for each head and bucket of distances. */
#ifndef ITH_WAN_TEXT_ATTENTION_H
#define ITH_WAN_TEXT_ATTENTION_H

#include "../kernels/rowops.h"
#include "text_encoder.h"

/* The bucket of a key that lies `distance` = key - query tokens away, 0 <= bucket < buckets. */
int64_t ith_text_bucket(int64_t distance, int64_t buckets, int64_t max_distance);

/* Floats of work space for `threads` threads and `count` tokens. */
int64_t ith_text_attention_work(const ith_text_config *config, int64_t count, int threads);

/* o = softmax(q k^T + bias) v for every head; all [count, heads, head_dim]. table: [buckets, heads]. work: of
 * ith_text_attention_work(config, count, threads); at most that many threads run. */
void ith_text_attention(const ith_text_config *config, const ith_rowops *rowops, int64_t count, const float *q,
                        const float *k, const float *v, const float *table, int threads, float *work, float *o);

#endif
