/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a whole attention problem, the shares of the ranks in them, and random problems.
 *
 * A share consists of pointers into the whole tensors: the strides of the problem let each rank read and write its rows
 * in place. Only lse is copied, because its rows [B, H, Sq] are not contiguous for a rank. */
#include "attend_whole.h"

#include "../cli.h"

#include <ithaca/files.h>

#include <math.h>
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

int64_t ith_attend_mask_bytes(const ith_attn_problem *p)
{
    const int64_t count = p->mask ? p->mask_batch * p->mask_heads * p->q_len * p->kv_len : 0;
    return count * (p->mask == ITH_MASK_ADDITIVE ? (int64_t)sizeof(float) : (int64_t)sizeof(uint8_t));
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
        for (int64_t row = 0; row < rows && count; row++)
            memcpy(whole->tensors.lse + row * p->q_len + begin, share + row * count, (size_t)count * sizeof *share);
    }
}

double ith_attend_operations(const ith_attn_problem *p)
{
    return 4.0 * (double)p->batch * (double)p->heads * (double)p->q_len * (double)p->kv_len * (double)p->head_dim;
}

/* ---- Random problems --------------------------------------------------------------------------------------------- */

#define GENERATOR_STEP 0x9e3779b97f4a7c15u /* by which the state of the generator grows */

/* Returns the next number of the generator SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += GENERATOR_STEP;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns an approximately normal number with variance 1: the scaled sum of four uniform numbers with variance 1/12
 * each. */
static float next_normal(uint64_t *state)
{
    uint64_t bits = next(state);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> (16 * i) & 0xffff);
    return ((float)sum + 2.0f - 0x1p17f) * (0x1p-16f * 1.7320508f);
}

/* The standard deviation of element `at` of a tensor [.., heads, D]: it grows geometrically from 1 in the first head to
 * `deviation` in the last. */
static float deviation_at(const ith_attn_problem *p, int64_t at, double deviation)
{
    const int64_t head = at / p->head_dim % p->heads;
    if (deviation == 1)
        return 1;
    return (float)pow(deviation, p->heads > 1 ? (double)head / (double)(p->heads - 1) : 1);
}

/* Makes a tensor [.., heads, D] of `count` normal numbers, on all threads. Returns NULL if there is no memory. */
static void *make_tensor(ith_context *context, ith_attend_whole *whole, int64_t count, uint64_t seed, double deviation)
{
    enum { PIECE = 4096 };
    const ith_attn_problem *p = &whole->problem;
    const int64_t bytes = ith_dtype_bytes(p->dtype);
    char *tensor = ith_attend_own(whole, count * bytes);
    bool good = tensor != NULL;
#pragma omp parallel for schedule(static) reduction(&& : good)
    for (int64_t i = 0; i < (tensor ? count : 0); i += PIECE) {
        const int64_t piece = count - i < PIECE ? count - i : PIECE;
        uint64_t state = seed + (uint64_t)i * GENERATOR_STEP;
        float values[PIECE], size = deviation_at(p, i, deviation);
        for (int64_t j = 0; j < piece; j++) {
            if ((i + j) % p->head_dim == 0)
                size = deviation_at(p, i + j, deviation);
            values[j] = size * next_normal(&state);
        }
        good = good && !ith_tensor_from_f32(context, values, piece, p->dtype, tensor + i * bytes);
    }
    return good ? tensor : NULL;
}

/* Makes random kv_lengths: all keys for the first batch entry, a random number of keys for each other entry. */
static bool make_lengths(ith_attend_whole *whole, uint64_t seed)
{
    const ith_attn_problem *p = &whole->problem;
    int32_t *lengths = ith_attend_own(whole, p->batch * (int64_t)sizeof *lengths);
    for (int64_t b = 0; lengths && b < p->batch; b++)
        lengths[b] = (int32_t)(b == 0 ? p->kv_len : (int64_t)(next(&seed) % (uint64_t)(p->kv_len + 1)));
    whole->tensors.kv_lengths = lengths;
    return lengths != NULL;
}

/* Makes a random mask. It hides about a quarter of the keys from each query, and all keys from the first query of the
 * last head. */
static bool make_mask(ith_attend_whole *whole, uint64_t seed)
{
    ith_attn_problem *p = &whole->problem;
    int64_t rows = p->mask_batch * p->mask_heads * p->q_len, blind = rows - p->q_len;
    bool additive = p->mask == ITH_MASK_ADDITIVE;
    void *mask = ith_attend_own(whole, ith_attend_mask_bytes(p));
    for (int64_t i = 0; mask && i < rows * p->kv_len; i++) {
        bool hidden = i / p->kv_len == blind || next(&seed) % 4 == 0;
        if (additive)
            ((float *)mask)[i] = hidden ? -INFINITY : next_normal(&seed);
        else
            ((uint8_t *)mask)[i] = !hidden;
    }
    whole->tensors.mask = mask;
    return mask != NULL;
}

int ith_attend_make_random(ith_context *context, uint64_t seed, double deviation, ith_attend_whole *whole)
{
    ith_attn_problem *p = &whole->problem;
    ith_attn_tensors *t = &whole->tensors;
    ith_attend_set_strides(p);
    int64_t q_count = p->batch * p->q_batch_stride, kv_count = p->batch * p->k_batch_stride;
    bool good = (t->q = make_tensor(context, whole, q_count, next(&seed), deviation)) &&
                (t->k = make_tensor(context, whole, kv_count, next(&seed), 1)) &&
                (t->v = make_tensor(context, whole, kv_count, next(&seed), 1));
    good = good && (!p->has_kv_lengths || make_lengths(whole, next(&seed)));
    good = good && (!p->mask || make_mask(whole, next(&seed)));
    if (good && ith_attend_own_results(whole))
        return ITH_EXIT_DONE;
    return ith_cli_error("there is no memory for a problem of %lld queries and %lld keys", (long long)p->q_len,
                         (long long)p->kv_len);
}
