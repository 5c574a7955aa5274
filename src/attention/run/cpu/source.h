/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of a sequence lie: in the caller's tensors, in those of other ranks, or in buffers of an exchange. A
 * sequence is a list of segments, each in one piece of memory; kernels get pointers to its rows, so that nothing is
 * copied before it is packed. */
#ifndef ITH_ATTENTION_SOURCE_H
#define ITH_ATTENTION_SOURCE_H

#include "../../setting.h"

/* Queries and what becomes of them. */
typedef struct ith_q_segment {
    ith_rows q, o;
    float *lse; /* [heads, rows] from head lse_first on; NULL: not wanted */
    int64_t lse_first;
    int64_t begin, rows; /* which rows of the whole sequence */
} ith_q_segment;

typedef struct ith_kv_segment {
    ith_rows k, v;
    int64_t begin, rows;
} ith_kv_segment;

/* Segments follow one another without a gap, in both. */
typedef struct ith_queries {
    const ith_q_segment *segments;
    int count;
    int64_t rows;
} ith_queries;

typedef struct ith_shard {
    const ith_kv_segment *segments;
    int count;
    int64_t begin, rows;
} ith_shard;

/* Pointers to rows [row, row + count) of query head `head`; q, o or both may be NULL. Returns the number that the
 * first of these rows has in the whole sequence. */
int64_t ith_query_rows(const ith_attn_setting *setting, const ith_queries *queries, int64_t head, int64_t row,
                       int64_t count, const void **q, void **o);
/* Puts lse [count] where it belongs, if it is wanted. */
void ith_query_lse(const ith_queries *queries, int64_t head, int64_t row, int64_t count, const float *lse);

/* Of a shard's rows how many come before the end that kv_lengths sets for a kv head's batch entry. */
int64_t ith_shard_keys(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                       int64_t kv_head);
/* Pointers to keys [row, row + count) of a kv head, NULL where key_bias is -inf; v may be NULL. Returns the
 * key_bias of the first, NULL if the problem has none. */
const float *ith_key_rows(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                          int64_t kv_head, int64_t row, int64_t count, const void **k, const void **v);

#endif
