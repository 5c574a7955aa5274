/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing tensors, and one sweep over what all ranks hold. */
#include "in_place.h"

#include "../base/size.h"
#include "../base/trace.h"
#include "schedule/chunk.h"
#include "hops.h"
#include "volume.h"

void ith_in_place_lay_out(const ith_attn_setting *s, ith_arena *arena, ith_in_place *out)
{
    int ranks = s->ulysses * s->ring;
    *out = (ith_in_place){.setting = s};
    out->cards = ith_arena_take(arena, ranks, sizeof *out->cards);
    out->q_segments = ith_arena_take(arena, s->ulysses, sizeof *out->q_segments);
    out->kv_segments = ith_arena_take(arena, ranks, sizeof *out->kv_segments);
    out->shards = ith_arena_take(arena, s->ring, sizeof *out->shards);
    out->order = ith_arena_take(arena, s->ring, sizeof *out->order);
    out->packed = ith_arena_take(arena, s->ring, sizeof *out->packed);
}

void ith_in_place_init(ith_in_place *in)
{
    const ith_attn_setting *s = in->setting;
    int ranks = s->ulysses * s->ring;
    in->q_rows = 0;
    for (int u = 0; u < s->ulysses; u++) {
        ith_q_segment *segment = &in->q_segments[u];
        *segment = (ith_q_segment){0};
        ith_share(s->problem.q_len, ranks, s->ring_index * s->ulysses + u, &segment->begin, &segment->rows);
        in->q_rows += segment->rows;
    }
    for (int rank = 0; rank < ranks; rank++) {
        in->kv_segments[rank] = (ith_kv_segment){0};
        ith_share(s->problem.kv_len, ranks, rank, &in->kv_segments[rank].begin, &in->kv_segments[rank].rows);
    }
    in->shard_count = ith_hops_order(s, in->order);
    for (int i = 0; i < in->shard_count; i++) {
        ith_shard *shard = &in->shards[i];
        shard->segments = &in->kv_segments[in->order[i] * s->ulysses];
        shard->count = s->ulysses;
        ith_stretch(s->problem.kv_len, ranks, in->order[i] * s->ulysses, s->ulysses, &shard->begin, &shard->rows);
    }
}

/* In a ring every rank computes with every shard: each packs its own for all. */
static bool packs_for_all(const ith_attn_setting *s)
{
    return s->ring > 1;
}

ith_sweep_shape ith_in_place_shape(const ith_attn_setting *s)
{
    ith_sweep_shape shape = {.shard_rows = ith_hops_most_rows(s), .packs_for_all = packs_for_all(s)};
    int64_t begin;
    ith_stretch(s->problem.q_len, s->ulysses * s->ring, s->ring_index * s->ulysses, s->ulysses, &begin, &shape.q_rows);
    for (int chunk = 0; chunk < ith_chunk_count(s); chunk++) {
        ith_heads heads = ith_chunk_heads(s, chunk, s->ulysses_index);
        shape.heads = ith_max64(shape.heads, heads.count);
        shape.kv_heads = ith_max64(shape.kv_heads, heads.kv_heads);
    }
    return shape;
}

/* What the ranks have shown becomes segments. */
static void take_cards(ith_in_place *in)
{
    const ith_attn_setting *s = in->setting;
    for (int u = 0; u < s->ulysses; u++) {
        const ith_in_place_card *card = &in->cards[s->ring_index * s->ulysses + u];
        in->q_segments[u].q = card->q;
        in->q_segments[u].o = card->o;
        in->q_segments[u].lse = card->lse;
    }
    for (int rank = 0; rank < s->ulysses * s->ring; rank++) {
        in->kv_segments[rank].k = in->cards[rank].k;
        in->kv_segments[rank].v = in->cards[rank].v;
    }
    for (int i = 0; i < in->shard_count; i++)
        in->packed[i] = in->cards[in->order[i] * s->ulysses + s->ulysses_index].packed;
}

static ith_status wait_for_all(const ith_attn_setting *s)
{
    double traced = ith_trace_begin(s->context);
    ith_status status = ith_comm_barrier(s->comm);
    ith_trace_end(s->context, traced, "wait", "wait");
    return status;
}

/* Packs the own shard once nobody computes with the last chunk's, and waits until all have. */
static ith_status pack_chunk(const ith_in_place *in, ith_sweep *sweep, int chunk, const ith_sweep_job *job)
{
    ith_sweep_job own = *job;
    own.shard_count = 1; /* it comes first in the order */
    ith_status status = chunk > 0 ? wait_for_all(in->setting) : ITH_OK;
    if (!status)
        ith_sweep_pack(sweep, &own);
    return status ? status : wait_for_all(in->setting);
}

static ith_status sweep_chunk(ith_in_place *in, ith_sweep *sweep, int chunk, const ith_attn_tensors *tensors,
                              ith_plan_counters *counters)
{
    const ith_attn_setting *s = in->setting;
    ith_queries queries = {in->q_segments, s->ulysses, in->q_rows};
    ith_sweep_job job = {.heads = ith_chunk_heads(s, chunk, s->ulysses_index),
                         .queries = &queries,
                         .shards = in->shards,
                         .shard_count = in->shard_count,
                         .tensors = tensors,
                         .first = true,
                         .last = true};
    ith_status status = ith_sweep_prepare(sweep, &job.heads, &queries, &in->shards[0], tensors);
    if (!status && packs_for_all(s)) {
        status = pack_chunk(in, sweep, chunk, &job);
        job.packed = in->packed;
    }
    if (status)
        return status;
    ith_sweep_run(sweep, &job);
    ith_sweep_count(sweep, &job.heads, counters);
    return ITH_OK;
}

ith_in_place_card ith_in_place_show(const ith_in_place *in, const ith_sweep *sweep, const ith_attn_tensors *tensors)
{
    const ith_attn_setting *s = in->setting;
    return (ith_in_place_card){ith_rows_of(s, ITH_TENSOR_Q, tensors),
                               ith_rows_of(s, ITH_TENSOR_K, tensors),
                               ith_rows_of(s, ITH_TENSOR_V, tensors),
                               ith_rows_of(s, ITH_TENSOR_O, tensors),
                               tensors->lse,
                               sweep->packed};
}

ith_status ith_in_place_run(ith_in_place *in, ith_sweep *sweep, const ith_attn_tensors *tensors,
                            ith_plan_counters *counters)
{
    const ith_attn_setting *s = in->setting;
    ith_status status = ITH_OK;
    take_cards(in);
    for (int chunk = 0; !status && chunk < ith_chunk_count(s); chunk++)
        status = sweep_chunk(in, sweep, chunk, tensors, counters);
    if (!status)
        counters->sent_bytes += ith_volume_bytes(s);
    return status;
}
