/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention (arXiv:2310.01889), in one direction or two (maxdiffusion #430). */
#include "hops.h"

#include "../base/size.h"

enum { FROM_LEFT, FROM_RIGHT };

/* ---- Shards ---------------------------------------------------------------------------------------------------- */

/* The rows of ring index `index`. */
static void shard_share(const ith_attn_setting *s, int index, int64_t *begin, int64_t *rows)
{
    ith_stretch(s->problem.kv_len, s->ring * s->ulysses, index * s->ulysses, s->ulysses, begin, rows);
}

int64_t ith_hops_most_rows(const ith_attn_setting *s)
{
    int64_t most = 0, begin, rows;
    for (int i = 0; i < s->ring; i++) {
        shard_share(s, i, &begin, &rows);
        most = ith_max64(most, rows);
    }
    return most;
}

/* The ring index whose shard comes to this rank at a hop, from one side; -1: none. */
static int source_of(const ith_attn_setting *s, int side, int hop)
{
    int index = side == FROM_LEFT ? s->ring_index - hop : s->ring_index + hop;
    if (s->direction == ITH_DIRECTION_UNI)
        return side == FROM_LEFT && hop < s->ring ? (index + s->ring) % s->ring : -1;
    return index >= 0 && index < s->ring ? index : -1;
}

int ith_hops_order(const ith_attn_setting *s, int *order)
{
    int count = 0;
    order[count++] = s->ring_index;
    for (int hop = 1; hop < s->ring; hop++)
        for (int side = FROM_LEFT; side <= FROM_RIGHT; side++)
            if (source_of(s, side, hop) >= 0)
                order[count++] = source_of(s, side, hop);
    return count;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

void ith_hops_lay_out(const ith_attn_setting *s, int64_t kv_heads, bool spares, ith_arena *arena, ith_hops *out)
{
    *out = (ith_hops){.setting = s};
    out->shards = ith_arena_take(arena, s->ring, sizeof *out->shards);
    out->order = ith_arena_take(arena, s->ring, sizeof *out->order);
    int64_t elements = ith_hops_most_rows(s) * kv_heads, head_bytes = s->problem.head_dim * s->element_bytes;
    for (int side = FROM_LEFT; side <= FROM_RIGHT; side++) {
        /* A shard is received while the one before it is computed and sent on: two buffers, if there are two hops. */
        int hops = 0;
        while (hops + 1 < s->ring && source_of(s, side, hops + 1) >= 0)
            hops++;
        for (int i = 0; i < ith_min64(hops, 2); i++) {
            if (spares && side == FROM_LEFT && i == 1)
                continue;
            for (int which = 0; which < 2; which++)
                out->buffers[side][i][which] = ith_arena_take(arena, elements, head_bytes);
        }
    }
}

void ith_hops_init(ith_hops *h)
{
    h->last = h->order[ith_hops_order(h->setting, h->order) - 1];
    for (int i = 0; i < h->setting->ring; i++) {
        h->shards[i] = (ith_kv_segment){0};
        shard_share(h->setting, i, &h->shards[i].begin, &h->shards[i].rows);
    }
}

/* ---- Hops ------------------------------------------------------------------------------------------------------ */

static ith_region shard_region(const ith_attn_setting *s, const ith_hops_job *job, const ith_rows *rows, int64_t count)
{
    return (ith_region){.data = rows->data,
                       .count = {job->heads.kv_heads / job->row_heads, count},
                       .stride = {rows->batch_stride * s->element_bytes, rows->row_stride * s->element_bytes},
                       .bytes = job->row_heads * s->problem.head_dim * s->element_bytes};
}

/* Where a shard lies that arrives at a hop. The second from the left may take the place of the rank's own. */
static void place_shard(const ith_hops *h, const ith_hops_job *job, int side, int hop, ith_kv_segment *shard)
{
    void *const *buffer = h->buffers[side][(hop - 1) % 2];
    int64_t width = job->row_heads * h->setting->problem.head_dim;
    bool spare = side == FROM_LEFT && hop % 2 == 0 && job->own_is_spare;
    shard->k = (ith_rows){.data = spare ? job->own->k.data : buffer[0],
                          .first = job->heads.kv_first,
                          .heads = job->row_heads,
                          .row_stride = width,
                          .batch_stride = shard->rows * width};
    shard->v = shard->k;
    shard->v.data = spare ? job->own->v.data : buffer[1];
}

static void list_shard(const ith_attn_setting *s, const ith_hops_job *job, const ith_kv_segment *shard, int peer,
                       ith_transfer *list, int *count)
{
    list[(*count)++] = (ith_transfer){peer, shard_region(s, job, &shard->k, shard->rows)};
    list[(*count)++] = (ith_transfer){peer, shard_region(s, job, &shard->v, shard->rows)};
}

/* Posts what leaves this rank at a hop and what comes for the next. Every rank posts at every hop, so that they keep in
 * step, even if it has nothing to move. */
static ith_status post_hop(ith_hops *h, const ith_hops_job *job, int hop)
{
    const ith_attn_setting *s = h->setting;
    int sends = 0, receives = 0;
    for (int side = FROM_LEFT; side <= FROM_RIGHT; side++) {
        int step = side == FROM_LEFT ? 1 : -1; /* what comes from the left goes on to the right */
        int to = (s->ring_index + step + s->ring) % s->ring, from = (s->ring_index - step + s->ring) % s->ring;
        int leaving = source_of(s, side, hop), coming = source_of(s, side, hop + 1);
        bool neighbour = s->direction == ITH_DIRECTION_UNI
                             ? side == FROM_LEFT
                             : s->ring_index + step >= 0 && s->ring_index + step < s->ring;
        if (leaving >= 0 && neighbour)
            list_shard(s, job, &h->shards[leaving], to, h->sends, &sends);
        if (coming >= 0) {
            place_shard(h, job, side, hop + 1, &h->shards[coming]);
            list_shard(s, job, &h->shards[coming], from, h->receives, &receives);
        }
    }
    return ith_transit_post(h->transit, h->setting->ring_comm, h->sends, sends, sends, h->receives, receives,
                            &h->request);
}

static void progress(void *user)
{
    ith_hops *h = user;
    ith_transit_test(h->transit, h->setting->ring_comm, &h->request);
    if (h->progress)
        h->progress(h->progress_user);
}

/* Computes on the shards that are here since a hop. */
static void compute_hop(ith_hops *h, ith_sweep *sweep, const ith_hops_job *job, int hop)
{
    for (int side = FROM_LEFT; side <= (hop ? FROM_RIGHT : FROM_LEFT); side++) {
        int index = source_of(h->setting, side, hop);
        if (index < 0)
            continue;
        const ith_kv_segment *segment = &h->shards[index];
        ith_shard shard = {segment, 1, segment->begin, segment->rows};
        ith_sweep_job part = {.heads = job->heads,
                              .queries = job->queries,
                              .shards = &shard,
                              .shard_count = 1,
                              .tensors = job->tensors,
                              .first = hop == 0,
                              .last = index == h->last,
                              .progress = progress,
                              .progress_user = h};
        ith_sweep_run(sweep, &part);
    }
}

ith_status ith_hops_run(ith_hops *h, ith_sweep *sweep, const ith_hops_job *job, ith_transit *transit)
{
    const ith_attn_setting *s = h->setting;
    h->transit = transit;
    h->request = NULL;
    h->shards[s->ring_index] = *job->own;
    ith_shard own = {job->own, 1, job->own->begin, job->own->rows};
    ith_status status = ith_sweep_prepare(sweep, &job->heads, job->queries, &own, job->tensors);
    for (int hop = 0; !status && hop < s->ring; hop++) {
        if (hop + 1 < s->ring)
            status = post_hop(h, job, hop);
        if (status)
            return status;
        compute_hop(h, sweep, job, hop);
        status = ith_transit_wait(h->transit, h->setting->ring_comm, &h->request);
    }
    return status;
}
