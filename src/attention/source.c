/* SPDX-License-Identifier: Apache-2.0 */
/* Pointers to rows of queries, keys and values that lie in several separate arrays, called segments (source.h). */
#include "source.h"

#include "../base/size.h"

#include <math.h>
#include <string.h>

/* Returns the segment (ith_q_segment) of the queries that holds row *row, and changes *row to the number of that row
 * within the segment. The row must exist. */
static const ith_q_segment *q_segment_of(const ith_queries *queries, int64_t *row)
{
    const ith_q_segment *segment = queries->segments;
    while (*row >= segment->rows)
        *row -= (segment++)->rows;
    return segment;
}

static const ith_kv_segment *kv_segment_of(const ith_shard *shard, int64_t *row)
{
    const ith_kv_segment *segment = shard->segments;
    while (*row >= segment->rows)
        *row -= (segment++)->rows;
    return segment;
}

/* Writes pointers to `count` rows of a head, from row `row` on, to out. */
static void list_rows(const ith_attn_setting *setting, const ith_rows *rows, int64_t head, int64_t row, int64_t count,
                      const void **out)
{
    const char *first = ith_rows_at(setting, rows, head, row);
    int64_t step = rows->row_stride * setting->element_bytes;
    for (int64_t i = 0; i < count; i++)
        out[i] = first + i * step;
}

int64_t ith_query_rows(const ith_attn_setting *setting, const ith_queries *queries, int64_t head, int64_t row,
                       int64_t count, const void **q, void **o)
{
    int64_t number = queries->count > 0 ? queries->segments[0].begin + row : 0;
    for (int64_t done = 0; done < count;) {
        int64_t local = row + done;
        const ith_q_segment *segment = q_segment_of(queries, &local);
        int64_t here = ith_min64(count - done, segment->rows - local);
        if (q)
            list_rows(setting, &segment->q, head, local, here, q + done);
        for (int64_t i = 0; o && i < here; i++)
            o[done + i] = ith_rows_at(setting, &segment->o, head, local + i);
        done += here;
    }
    return number;
}

void ith_query_lse(const ith_queries *queries, int64_t head, int64_t row, int64_t count, const float *lse)
{
    for (int64_t done = 0; done < count;) {
        int64_t local = row + done;
        const ith_q_segment *segment = q_segment_of(queries, &local);
        int64_t here = ith_min64(count - done, segment->rows - local);
        if (segment->lse)
            memcpy(segment->lse + (head - segment->lse_first) * segment->rows + local, lse + done,
                   (size_t)here * sizeof *lse);
        done += here;
    }
}

int64_t ith_shard_keys(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                       int64_t kv_head)
{
    if (!setting->problem.has_kv_lengths)
        return shard->rows;
    int64_t length = tensors->kv_lengths[kv_head / setting->problem.kv_heads];
    return ith_max64(ith_min64(length - shard->begin, shard->rows), 0);
}

const float *ith_key_rows(const ith_attn_setting *setting, const ith_shard *shard, const ith_attn_tensors *tensors,
                          int64_t kv_head, int64_t row, int64_t count, const void **k, const void **v)
{
    const ith_attn_problem *p = &setting->problem;
    const float *bias = NULL;
    if (p->has_key_bias)
        bias = tensors->key_bias + kv_head / p->kv_heads * p->kv_len + shard->begin + row;
    for (int64_t done = 0; done < count;) {
        int64_t local = row + done;
        const ith_kv_segment *segment = kv_segment_of(shard, &local);
        int64_t here = ith_min64(count - done, segment->rows - local);
        list_rows(setting, &segment->k, kv_head, local, here, k + done);
        if (v)
            list_rows(setting, &segment->v, kv_head, local, here, v + done);
        done += here;
    }
    for (int64_t i = 0; bias && i < count; i++)
        if (bias[i] == -INFINITY) {
            k[i] = NULL;
            if (v)
                v[i] = NULL;
        }
    return bias;
}

/* Adds the bytes of `rows` rows of one head to the counter *sent. */
static void add_bytes(const ith_attn_setting *setting, _Atomic int64_t *sent, int64_t rows)
{
    atomic_fetch_add_explicit(sent, rows * setting->problem.head_dim * setting->element_bytes, memory_order_relaxed);
}

void ith_query_count(const ith_attn_setting *setting, const ith_queries *queries, int64_t row, int64_t count,
                     _Atomic int64_t *written)
{
    for (int64_t done = 0, here; done < count; done += here) {
        int64_t local = row + done;
        const ith_q_segment *segment = q_segment_of(queries, &local);
        here = ith_min64(count - done, segment->rows - local);
        if (segment->sent) {
            add_bytes(setting, segment->sent, here);
            add_bytes(setting, written, here);
        }
    }
}

void ith_key_count(const ith_attn_setting *setting, const ith_shard *shard, int64_t row, int64_t count)
{
    for (int64_t done = 0, here; done < count; done += here) {
        int64_t local = row + done;
        const ith_kv_segment *segment = kv_segment_of(shard, &local);
        here = ith_min64(count - done, segment->rows - local);
        if (segment->sent)
            add_bytes(setting, segment->sent, 2 * here);
    }
}
