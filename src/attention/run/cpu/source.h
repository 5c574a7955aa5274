/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a sequence in memory: in the tensors of the caller or of other ranks, or in buffers of an exchange. A
 * sequence is a list of segments, each in one piece of memory. Kernels get pointers to its rows, so nothing is copied
 * before it is packed. */
#ifndef ITH_ATTENTION_SOURCE_H
#define ITH_ATTENTION_SOURCE_H

#include "../../setting.h"

/* Queries and their outputs. */
typedef struct ith_q_segment {
    ith_rows q, o;
    float *lse; /* [heads, rows] from head lse_first on; NULL: not wanted */
    int64_t lse_first;
    int64_t begin, rows;   /* which rows of the whole sequence */
    _Atomic int64_t *sent; /* the count of the rank whose memory this is; NULL: it is this rank's */
} ith_q_segment;

typedef struct ith_kv_segment {
    ith_rows k, v;
    int64_t begin, rows;
    _Atomic int64_t *sent; /* as in ith_q_segment */
} ith_kv_segment;

/* The segments of queries, and of a shard, follow one another without a gap. */
typedef struct ith_queries {
    const ith_q_segment *segments;
    int count;
    int64_t rows;
} ith_queries;

typedef struct ith_shard {
    const ith_kv_segment *segments;
    int count;
    int64_t begin, rows;
    const char *packed;    /* where ith_sweep_pack has put it; NULL: it is not packed yet */
    _Atomic int64_t *sent; /* of the rank that packed it, as in ith_q_segment */
} ith_shard;

/* Pointers to rows [row, row + count) of query head `head`; q, o or both may be NULL. Returns the
 * number of the first row in the whole sequence. */
int64_t ith_query_rows(const ith_attn_setting *setting, const ith_queries *queries, int64_t head, int64_t row,
                       int64_t count, const void **q, void **o);
/* Writes lse [count] of rows [row, row + count), if it is wanted. */
void ith_query_lse(const ith_queries *queries, int64_t head, int64_t row, int64_t count, const float *lse);

/* The number of rows of a shard before the end that kv_lengths sets for the batch entry of a kv head. */
int64_t ith_shard_keys(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                       int64_t kv_head);
/* Pointers to keys [row, row + count) of a kv head, NULL where key_bias is -inf; v may be NULL. Returns the
 * key_bias of the first, NULL if the problem has none. */
const float *ith_key_rows(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                          int64_t kv_head, int64_t row, int64_t count, const void **k, const void **v);

/* Count the bytes of rows [row, row + count) that lie in the memory of other ranks: q for its owner, o for this rank
 * (`written`); k and v for their owner. */
void ith_query_count(const ith_attn_setting *setting, const ith_queries *queries, int64_t row, int64_t count,
                     _Atomic int64_t *written);
void ith_key_count(const ith_attn_setting *setting, const ith_shard *shard, int64_t row, int64_t count);

#endif
