/* SPDX-License-Identifier: Apache-2.0 */
/* Whole tensors and the shares of ranks: pointers into the whole, whose strides the problem describes. */
#include "attend_whole.h"

#include <stdlib.h>
#include <string.h>

void ith_attend_set_strides(ith_attn_problem *p)
{
    p->q_row_stride = p->o_row_stride = p->heads * p->head_dim;
    p->q_batch_stride = p->o_batch_stride = p->q_len * p->q_row_stride;
    p->k_row_stride = p->v_row_stride = p->kv_heads * p->head_dim;
    p->k_batch_stride = p->v_batch_stride = p->kv_len * p->k_row_stride;
}

void *ith_attend_own(ith_attend_whole *whole, int64_t bytes)
{
    if (bytes < 0 || whole->owned_count == ITH_ATTEND_OWNED_MAX)
        return NULL;
    void *memory = aligned_alloc(64, ((size_t)bytes / 64 + 1) * 64);
    if (memory)
        whole->owned[whole->owned_count++] = memory;
    return memory;
}

bool ith_attend_own_results(ith_attend_whole *whole)
{
    const ith_attn_problem *p = &whole->problem;
    int64_t lse_bytes = p->batch * p->heads * p->q_len * (int64_t)sizeof *whole->tensors.lse;
    whole->tensors.o = ith_attend_own(whole, p->batch * p->o_batch_stride * ith_dtype_bytes(p->dtype));
    whole->tensors.lse = ith_attend_own(whole, lse_bytes);
    whole->lse_shares = ith_attend_own(whole, lse_bytes);
    return whole->tensors.o && whole->tensors.lse && whole->lse_shares;
}

void ith_attend_free(ith_attend_whole *whole)
{
    for (int i = 0; i < whole->owned_count; i++)
        free(whole->owned[i]);
    *whole = (ith_attend_whole){.owned_count = 0};
}

ith_attn_tensors ith_attend_share(const ith_attend_whole *whole, int ranks, int rank)
{
    const ith_attn_problem *p = &whole->problem;
    ith_attn_tensors share = whole->tensors;
    share.struct_size = sizeof share;
    int64_t bytes = ith_dtype_bytes(p->dtype), q_begin, kv_begin, count;
    ith_share(p->q_len, ranks, rank, &q_begin, &count);
    ith_share(p->kv_len, ranks, rank, &kv_begin, &count);
    share.q = (const char *)share.q + q_begin * p->q_row_stride * bytes;
    share.k = (const char *)share.k + kv_begin * p->k_row_stride * bytes;
    share.v = (const char *)share.v + kv_begin * p->v_row_stride * bytes;
    share.o = (char *)share.o + q_begin * p->o_row_stride * bytes;
    if (share.lse)
        share.lse = whole->lse_shares + p->batch * p->heads * q_begin;
    return share;
}

void ith_attend_gather_lse(ith_attend_whole *whole, int ranks)
{
    const ith_attn_problem *p = &whole->problem;
    int64_t rows = p->batch * p->heads;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t begin, count;
        ith_share(p->q_len, ranks, rank, &begin, &count);
        const float *share = whole->lse_shares + rows * begin;
        for (int64_t row = 0; row < rows; row++)
            memcpy(whole->tensors.lse + row * p->q_len + begin, share + row * count, (size_t)count * sizeof *share);
    }
}

double ith_attend_operations(const ith_attn_problem *p)
{
    return 4.0 * (double)p->batch * (double)p->heads * (double)p->q_len * (double)p->kv_len * (double)p->head_dim;
}
