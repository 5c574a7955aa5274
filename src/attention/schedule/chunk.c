/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the list of heads into chunks (chunk.h). */
#include "chunk.h"

#include "../../base/size.h"

/* The unit of chunk sizes, in heads: every chunk but the last has a multiple of it. heads: the length of the list
 * that is divided into chunks, which holds all heads or the heads of one batch entry. */
static int64_t unit_of(const ith_attn_setting *s, int64_t heads)
{
    int64_t per_key = s->problem.heads / s->problem.kv_heads;
    return heads >= s->ulysses * per_key ? s->ulysses * per_key : s->ulysses;
}

bool ith_chunks_by_entry(const ith_attn_setting *s)
{
    return !s->folded && s->ulysses > 1;
}

static int64_t list_length(const ith_attn_setting *s)
{
    return ith_chunks_by_entry(s) ? s->problem.heads : s->problem.batch * s->problem.heads;
}

static int64_t chunks_of_list(const ith_attn_setting *s)
{
    int64_t heads = list_length(s), units = ith_max64(heads / unit_of(s, heads), 1);
    int64_t wanted = s->ulysses > 1 ? ith_max64(s->chunks, 1) : 1;
    return ith_min64(wanted, units);
}

int ith_chunk_count(const ith_attn_setting *s)
{
    if (!s->problem.q_len) /* there are no steps, and the batch may be too large for an int */
        return 1;
    return (int)(chunks_of_list(s) * (ith_chunks_by_entry(s) ? s->problem.batch : 1));
}

ith_heads ith_chunk_heads(const ith_attn_setting *s, int chunk, int ulysses_index)
{
    int64_t chunks = chunks_of_list(s), heads = list_length(s), unit = unit_of(s, heads);
    int64_t first, units, mine, count;
    ith_share(ith_max64(heads / unit, 1), (int)chunks, (int)(chunk % chunks), &first, &units);
    first *= unit;
    count = chunk % chunks == chunks - 1 ? heads - first : units * unit;
    ith_share(count, s->ulysses, ulysses_index, &mine, &count);
    return ith_heads_of(&s->problem, chunk / chunks * heads + first + mine, count);
}
