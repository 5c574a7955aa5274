/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to rows in the memory of other ranks, and shards that each rank packs for all ranks (in_place.h). */
#include "in_place.h"

void ith_in_place_lay_out(const ith_attn_setting *s, ith_arena *arena, ith_in_place *out)
{
    *out = (ith_in_place){.setting = s};
    out->q_segments = ith_arena_take(arena, s->ulysses, sizeof *out->q_segments);
    out->kv_segments = ith_arena_take(arena, s->ulysses, sizeof *out->kv_segments);
    if (s->exchange == ITH_EXCHANGE_MIXED)
        return;
    out->ring = ith_arena_take(arena, s->ring, sizeof *out->ring);
    out->shards = ith_arena_take(arena, s->ring, sizeof *out->shards);
}

void ith_in_place_meet(ith_in_place *in, int rank, const ith_in_place_record *record)
{
    const ith_attn_setting *s = in->setting;
    const ith_attn_problem *p = &s->problem;
    int ranks = s->ulysses * s->ring, u = rank % s->ulysses, r = rank / s->ulysses, own_ring = s->rank / s->ulysses;
    _Atomic int64_t *sent = rank == s->rank ? NULL : record->sent;
    if (r == own_ring) {
        ith_q_segment *q = &in->q_segments[u];
        ith_kv_segment *kv = &in->kv_segments[u];
        *q = (ith_q_segment){.q = record->q, .o = record->o, .lse = record->lse, .sent = sent};
        *kv = (ith_kv_segment){.k = record->k, .v = record->v, .sent = sent};
        ith_share(p->q_len, ranks, rank, &q->begin, &q->rows);
        ith_share(p->kv_len, ranks, rank, &kv->begin, &kv->rows);
    }
    if (u == s->rank % s->ulysses && s->exchange == ITH_EXCHANGE_IN_PLACE) {
        ith_row_range span = ith_schedule_shard(s, p->kv_len, r);
        in->ring[r] = (ith_shard){.begin = span.begin, .rows = span.rows, .packed = record->packed, .sent = sent};
        if (r == own_ring)
            in->ring[r].segments = in->kv_segments, in->ring[r].count = s->ulysses;
    }
}

void ith_in_place_find(const ith_in_place *in, const ith_step *step, ith_queries *queries, ith_shard *shard)
{
    *queries = (ith_queries){in->q_segments, in->setting->ulysses, step->q.rows};
    *shard = in->ring[step->shard];
}

/* Packs this rank's shard for all ranks. Before that it waits until no rank uses the packed shard of the previous
 * chunk, and afterwards until all ranks have packed. */
static ith_status pack_for_all(const ith_in_place *in, ith_sweep *sweep, const ith_step *step, const ith_sweep_job *job)
{
    ith_status status = step->chunk > 0 ? ith_comm_barrier(in->setting->comm) : ITH_OK;
    if (status)
        return status;
    ith_sweep_pack(sweep, job);
    return ith_comm_barrier(in->setting->comm);
}

ith_status ith_in_place_compute(ith_in_place *in, ith_sweep *sweep, const ith_step *step, const ith_sweep_job *job)
{
    ith_sweep_job all = *job;
    if (step->first)
        in->shard_count = 0;
    in->shards[in->shard_count++] = *job->shards;
    if (step->first && !step->last)
        return pack_for_all(in, sweep, step, job);
    if (!step->last)
        return ITH_OK;
    all.shards = in->shards;
    all.shard_count = in->shard_count;
    all.first = true;
    ith_sweep_run(sweep, &all);
    return ITH_OK;
}
