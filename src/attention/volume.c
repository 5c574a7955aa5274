/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes: rows times heads that leave a rank. */
#include "volume.h"

#include "../base/size.h"
#include "schedule/chunk.h"

/* A rank's share of queries and keys. */
typedef struct rank_rows {
    int64_t q, kv;
} rank_rows;

static rank_rows rows_of_rank(const ith_attn_setting *s, int ring_index, int ulysses_index)
{
    rank_rows rows;
    int64_t begin;
    int ranks = s->ulysses * s->ring, rank = ring_index * s->ulysses + ulysses_index;
    ith_share(s->problem.q_len, ranks, rank, &begin, &rows.q);
    ith_share(s->problem.kv_len, ranks, rank, &begin, &rows.kv);
    return rows;
}

/* Row-heads that the all-to-all of a chunk sends: own queries, keys and values to the others of the axis, their outputs
 * back to them. */
static int64_t all_to_all(const ith_attn_setting *s, int chunk)
{
    rank_rows own = rows_of_rank(s, s->ring_index, s->ulysses_index);
    ith_heads mine = ith_chunk_heads(s, chunk, s->ulysses_index);
    int64_t sent = 0;
    for (int u = 0; u < s->ulysses; u++) {
        if (u == s->ulysses_index)
            continue;
        ith_heads theirs = ith_chunk_heads(s, chunk, u);
        sent +=
            own.q * theirs.count + 2 * own.kv * theirs.kv_heads + rows_of_rank(s, s->ring_index, u).q * mine.count;
    }
    return sent;
}

/* Row-heads that a ring sends of a chunk by messages: every shard that passes this rank on its way. */
static int64_t passed_on(const ith_attn_setting *s, int chunk)
{
    int64_t rows[2] = {0, 0}; /* to the right, to the left */
    for (int index = 0; index < s->ring; index++) {
        int64_t begin, shard;
        ith_stretch(s->problem.kv_len, s->ring * s->ulysses, index * s->ulysses, s->ulysses, &begin, &shard);
        if (s->direction == ITH_DIRECTION_UNI) {
            bool ends_here = index == (s->ring_index + 1) % s->ring; /* the last to come goes no further */
            rows[0] += ends_here ? 0 : shard;
            continue;
        }
        rows[0] += index <= s->ring_index && s->ring_index + 1 < s->ring ? shard : 0;
        rows[1] += index >= s->ring_index && s->ring_index > 0 ? shard : 0;
    }
    return 2 * (rows[0] + rows[1]) * ith_chunk_heads(s, chunk, s->ulysses_index).kv_heads;
}

/* Row-heads of this rank's keys and values that ranks of other rings read where they lie. */
static int64_t read_by_others(const ith_attn_setting *s, int chunk)
{
    int64_t heads = 0;
    for (int u = 0; u < s->ulysses; u++)
        heads += ith_chunk_heads(s, chunk, u).kv_heads;
    return 2 * rows_of_rank(s, s->ring_index, s->ulysses_index).kv * heads * (s->ring - 1);
}

int64_t ith_volume_bytes(const ith_attn_setting *s)
{
    int64_t sent = 0;
    if (s->exchange == ITH_EXCHANGE_AUTO)
        return 0;
    for (int chunk = 0; chunk < ith_chunk_count(s); chunk++) {
        sent += all_to_all(s, chunk);
        if (s->ring > 1)
            sent += s->exchange == ITH_EXCHANGE_COPY ? passed_on(s, chunk) : read_by_others(s, chunk);
    }
    return sent * s->problem.head_dim * s->element_bytes;
}
