/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a sequence in memory: in the tensors of the caller or of other ranks, or in buffers of an exchange. A
 * sequence is a list of segments; each segment lies in one piece of memory. Kernels get pointers to rows, so rows are
 * not copied before they are packed. */
#ifndef ITH_ATTENTION_SOURCE_H
#define ITH_ATTENTION_SOURCE_H

#include "setting.h"

/* A segment of queries: queries that follow one another in the sequence and lie in one array, and the memory for their
 * outputs. */
typedef struct ith_q_segment {
    ith_rows q, o;
    float *lse; /* [heads, rows], beginning with head lse_first; NULL: lse is not wanted */
    int64_t lse_first;
    int64_t begin, rows; /* rows [begin, begin + rows) of the whole sequence */
    /* the counter of the bytes that the owner of this memory sends; NULL: this rank is the owner */
    _Atomic int64_t *sent;
} ith_q_segment;

/* A segment of keys and values: rows that follow one another in the sequence and lie in one array each. */
typedef struct ith_kv_segment {
    ith_rows k, v;
    int64_t begin, rows; /* rows [begin, begin + rows) of the whole sequence */
    /* the counter of the bytes that the owner of this memory sends; NULL: this rank is the owner */
    _Atomic int64_t *sent;
} ith_kv_segment;

/* A range of queries of the sequence, as a list of arrays (segments) that hold its parts in order. */
typedef struct ith_queries {
    const ith_q_segment *segments;
    int count;
    int64_t rows;
} ith_queries;

/* A shard of the keys and values of the sequence, as a list of arrays (segments) that hold its parts in order. */
typedef struct ith_shard {
    const ith_kv_segment *segments;
    int count;
    int64_t begin, rows;
    const char *packed; /* the packed shard, if ith_sweep_pack has packed it; otherwise NULL */
    /* the counter of the bytes that the owner of the packed shard sends; NULL: this rank is the owner */
    _Atomic int64_t *sent;
} ith_shard;

/* Writes pointers to rows [row, row + count) of query head `head` to q and o. q, o or both may be NULL. Returns the
 * number of the first row in the whole sequence. */
int64_t ith_query_rows(const ith_attn_setting *setting, const ith_queries *queries, int64_t head, int64_t row,
                       int64_t count, const void **q, void **o);
/* Copies lse [count] of queries [row, row + count) of a head to ith_q_segment.lse of the segments that hold these
 * queries, where it is not NULL. */
void ith_query_lse(const ith_queries *queries, int64_t head, int64_t row, int64_t count, const float *lse);

/* The number of rows of a shard before the end of the keys, which kv_lengths sets for the batch entry of a kv head. */
int64_t ith_shard_keys(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                       int64_t kv_head);
/* Writes pointers to keys and values [row, row + count) of a kv head to k and v. Pointers are NULL where key_bias is
 * -inf. v may be NULL. Returns a pointer to the key_bias of the first key, or NULL if the problem has no key_bias. */
const float *ith_key_rows(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                          int64_t kv_head, int64_t row, int64_t count, const void **k, const void **v);

/* Count the bytes of rows [row, row + count) that lie in the memory of other ranks. Bytes of queries, keys and values
 * are added to the count of the rank that owns them, bytes of outputs to this rank's count (`written`). */
void ith_query_count(const ith_attn_setting *setting, const ith_queries *queries, int64_t row, int64_t count,
                     _Atomic int64_t *written);
void ith_key_count(const ith_attn_setting *setting, const ith_shard *shard, int64_t row, int64_t count);

#endif
