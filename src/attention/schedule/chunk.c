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

/* The query heads of a chunk: [*first, *first + *count) of the whole batch. */
static void find_chunk(const ith_attn_setting *s, int chunk, int64_t *first, int64_t *count)
{
    int64_t chunks = chunks_of_list(s), heads = list_length(s), unit = unit_of(s, heads), units;
    ith_share(ith_max64(heads / unit, 1), (int)chunks, (int)(chunk % chunks), first, &units);
    *first *= unit;
    *count = chunk % chunks == chunks - 1 ? heads - *first : units * unit;
    *first += chunk / chunks * heads;
}

ith_heads ith_chunk_heads(const ith_attn_setting *s, int chunk, int ulysses_index)
{
    int64_t first, count, mine;
    find_chunk(s, chunk, &first, &count);
    ith_share(count, s->ulysses, ulysses_index, &mine, &count);
    return ith_heads_of(&s->problem, first + mine, count);
}

/* ---- Runs of ranks ----------------------------------------------------------------------------------------------- */

ith_heads_run ith_chunk_run(const ith_attn_setting *s, int chunk, int64_t begin, int64_t end)
{
    int64_t first, count;
    find_chunk(s, chunk, &first, &count);
    const int64_t each = count / s->ulysses, longer = count % s->ulysses, last = each ? end : ith_min64(end, longer);
    return (ith_heads_run){.first = first + begin * each + ith_min64(begin, longer),
                           .ranks = ith_max64(last - begin, 0),
                           .each = each,
                           .longer = ith_max64(ith_min64(longer, last) - begin, 0)};
}

/* The least i >= 0 for which i * step is `rest` more than a multiple of d; INT64_MAX if there is none, or if i * step
 * is beyond all sizes. rest and step are from 0 to d - 1. i * step is rest + k * d, so k * d is `rest` less than a
 * multiple of step, and the least k is found in the same way. This takes the steps of Euclid's algorithm. */
static int64_t first_with_rest(int64_t rest, int64_t step, int64_t d)
{
    int64_t sum;
    if (!rest)
        return 0;
    if (!step)
        return INT64_MAX;
    const int64_t k = first_with_rest((step - rest % step) % step, d % step, step);
    return ith_size_mul(k, d, &sum) && ith_size_add(sum, rest, &sum) ? sum / step : INT64_MAX;
}

/* How many of the numbers first, first + step, ... (`count` of them) are multiples of d. From the first multiple on,
 * they repeat with a period. */
static int64_t count_multiples(int64_t first, int64_t step, int64_t count, int64_t d)
{
    const int64_t before = first_with_rest((d - first % d) % d, step % d, d);
    return before < count ? (count - 1 - before) / (d / ith_common_divisor(d, step)) + 1 : 0;
}

int64_t ith_run_groups(const ith_heads_run *run, int64_t size)
{
    if (!run->ranks || size == 1)
        return ith_run_heads(run);
    /* the ends of all ranks but the last: a group that such an end cuts counts twice */
    const int64_t ends = run->ranks - 1, early = ith_min64(run->longer, ends), longer = run->each + 1;
    const int64_t whole = count_multiples(run->first + longer, longer, early, size) +
                          count_multiples(run->first + early * longer + run->each, run->each, ends - early, size);
    return ith_groups_of(run->first, ith_run_heads(run), size) + ends - whole;
}
