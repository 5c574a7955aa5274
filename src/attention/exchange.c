/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of blocks for the two exchanges, and the pipeline of chunks. */
#include "exchange.h"

#include "../base/size.h"

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static int buffer_count(const ith_attn_setting *s)
{
    int chunks = ith_chunk_count(s);
    return chunks < ITH_EXCHANGE_BUFFERS ? chunks : ITH_EXCHANGE_BUFFERS;
}

static void measure_axis(const ith_attn_setting *s, ith_exchange *e)
{
    int all = s->ulysses * s->ring, first = s->ring_index * s->ulysses;
    ith_stretch(s->problem.q_len, all, first, s->ulysses, &e->q_first, &e->q_rows);
    ith_stretch(s->problem.kv_len, all, first, s->ulysses, &e->kv_first, &e->kv_rows);
}

/* The most heads that one of the chunks which take turns in a buffer brings. */
static ith_heads most_heads(const ith_attn_setting *s, int buffer)
{
    ith_heads most = {0};
    for (int chunk = buffer; chunk < ith_chunk_count(s); chunk += buffer_count(s)) {
        ith_heads heads = ith_chunk_heads(s, chunk, s->ulysses_index);
        most.count = ith_max64(most.count, heads.count);
        most.kv_heads = ith_max64(most.kv_heads, heads.kv_heads);
    }
    return most;
}

void ith_exchange_lay_out(const ith_attn_setting *s, ith_arena *arena, ith_exchange *out)
{
    int64_t head_bytes = s->problem.head_dim * s->element_bytes;
    /* Tensors go to each rank in at most a block per batch entry; on the way back lse takes a tensor's place. */
    int64_t blocks = s->problem.batch * 3 * s->ulysses;
    int64_t kv_rows = ith_div_up(s->problem.kv_len, s->ring) + s->ulysses; /* room for any shard of the ring */
    *out = (ith_exchange){.setting = s};
    arena->overflow |= blocks > INT32_MAX;
    measure_axis(s, out);
    kv_rows = ith_max64(s->ring > 1 ? kv_rows : 0, out->kv_rows);
    out->members = ith_arena_take(arena, s->ulysses, sizeof *out->members);
    for (int i = 0; i < buffer_count(s); i++) {
        ith_exchanged *b = &out->buffers[i];
        ith_heads most = most_heads(s, i);
        out->problems = ith_max64(out->problems, most.count);
        out->kv_heads = ith_max64(out->kv_heads, most.kv_heads);
        b->q_segment.q.data = ith_arena_take(arena, out->q_rows * most.count, head_bytes);
        b->kv_segment.k.data = ith_arena_take(arena, kv_rows * most.kv_heads, head_bytes);
        b->kv_segment.v.data = ith_arena_take(arena, kv_rows * most.kv_heads, head_bytes);
        b->q_segment.o.data = ith_arena_take(arena, out->q_rows * most.count, head_bytes);
        out->lse[i] = ith_arena_take(arena, out->q_rows * most.count, sizeof(float));
        b->sends = ith_arena_take(arena, blocks, sizeof *b->sends);
        b->receives = ith_arena_take(arena, blocks, sizeof *b->receives);
    }
}

void ith_exchange_init(ith_exchange *e)
{
    const ith_attn_setting *s = e->setting;
    int all = s->ulysses * s->ring, first = s->ring_index * s->ulysses;
    for (int u = 0; u < s->ulysses; u++) {
        ith_member *m = &e->members[u];
        ith_share(s->problem.q_len, all, first + u, &m->q_begin, &m->q_rows);
        ith_share(s->problem.kv_len, all, first + u, &m->kv_begin, &m->kv_rows);
        m->q_begin -= e->q_first;
        m->kv_begin -= e->kv_first;
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------------------------- */

/* Some rows of problems [first, first + count), of which a batch entry has per_entry. */
typedef struct range {
    ith_rows rows;
    int64_t row, row_count, first, count, per_entry;
} range;

/* Lists a range: a block for every batch entry that it touches, so that both ends cut it alike. */
static void list_blocks(const ith_attn_setting *s, ith_transfer *list, int *listed, int peer, const range *r)
{
    int64_t end = r->first + r->count;
    for (int64_t n = r->first; n < end && r->row_count > 0;) {
        int64_t next = ith_min64((n / r->per_entry + 1) * r->per_entry, end);
        list[(*listed)++] = (ith_transfer){
            .peer = peer,
            .region = {.data = ith_rows_at(s, &r->rows, n, r->row),
                      .count = {r->row_count, 1},
                      .stride = {r->rows.row_stride * s->element_bytes, 0},
                      .bytes = (next - n) * s->problem.head_dim * s->element_bytes},
        };
        n = next;
    }
}

/* Rank `peer`'s rows of this rank's heads, in the chunk's buffer. */
static range buffered(const ith_exchange *e, const ith_exchanged *chunk, int peer, ith_rows buffer, bool keys)
{
    const ith_attn_problem *p = &e->setting->problem;
    const ith_member *m = &e->members[peer];
    if (keys)
        return (range){buffer, m->kv_begin, m->kv_rows, chunk->heads.kv_first, chunk->heads.kv_heads, p->kv_heads};
    return (range){buffer, m->q_begin, m->q_rows, chunk->heads.first, chunk->heads.count, p->heads};
}

/* This rank's rows of rank `peer`'s heads, in the caller's tensor. */
static range callers(const ith_exchange *e, const ith_exchanged *chunk, int peer, ith_rows tensor, bool keys)
{
    const ith_attn_problem *p = &e->setting->problem;
    const ith_member *own = &e->members[e->setting->ulysses_index];
    ith_heads theirs = ith_chunk_heads(e->setting, chunk->chunk, peer);
    if (keys)
        return (range){tensor, 0, own->kv_rows, theirs.kv_first, theirs.kv_heads, p->kv_heads};
    return (range){tensor, 0, own->q_rows, theirs.first, theirs.count, p->heads};
}

/* The lse of a peer's rows goes there; this rank's rows of the peer's heads come back as one block, since [B, H, rows]
 * is the list of problems. */
static void list_lse(const ith_exchange *e, ith_exchanged *chunk, int peer, float *lse)
{
    const ith_member *own = &e->members[e->setting->ulysses_index], *other = &e->members[peer];
    ith_heads theirs = ith_chunk_heads(e->setting, chunk->chunk, peer);
    int64_t size = sizeof *lse;
    chunk->sends[chunk->send_count++] = (ith_transfer){
        .peer = peer,
        .region = {.data = chunk->q_segment.lse + other->q_begin,
                  .count = {chunk->heads.count, 1},
                  .stride = {e->q_rows * size, 0},
                  .bytes = other->q_rows * size},
    };
    chunk->receives[chunk->receive_count++] = (ith_transfer){
        .peer = peer,
        .region = {.data = lse + theirs.first * own->q_rows,
                  .count = {1, 1},
                  .bytes = theirs.count * own->q_rows * size},
    };
}

/* ---- Chunks ---------------------------------------------------------------------------------------------------- */

/* Says what a buffer holds from now on. */
static void describe_chunk(const ith_exchange *e, int index, bool wants_lse, float *lse, ith_exchanged *chunk)
{
    const ith_attn_setting *s = e->setting;
    ith_heads heads = ith_chunk_heads(s, index, s->ulysses_index);
    ith_q_segment *q = &chunk->q_segment;
    ith_kv_segment *kv = &chunk->kv_segment;
    chunk->chunk = index;
    chunk->heads = heads;
    q->q = ith_rows_in_buffer(s, q->q.data, heads.first, heads.count);
    q->o = ith_rows_in_buffer(s, q->o.data, heads.first, heads.count);
    q->lse = wants_lse ? lse : NULL;
    q->lse_first = heads.first;
    q->begin = e->q_first;
    q->rows = e->q_rows;
    kv->k = ith_rows_in_buffer(s, kv->k.data, heads.kv_first, heads.kv_heads);
    kv->v = ith_rows_in_buffer(s, kv->v.data, heads.kv_first, heads.kv_heads);
    kv->begin = e->kv_first;
    kv->rows = e->kv_rows;
    chunk->queries = (ith_queries){q, 1, q->rows};
    chunk->own = (ith_shard){kv, 1, kv->begin, kv->rows};
}

static ith_status post_inputs(ith_exchange *e, ith_exchanged *chunk, const ith_attn_tensors *tensors)
{
    const ith_rows buffers[] = {chunk->q_segment.q, chunk->kv_segment.k, chunk->kv_segment.v};
    chunk->send_count = chunk->receive_count = 0;
    for (int which = ITH_TENSOR_Q; which <= ITH_TENSOR_V; which++) {
        ith_rows tensor = ith_rows_of(e->setting, (ith_attn_tensor)which, tensors);
        for (int peer = 0; peer < e->setting->ulysses; peer++) {
            range out = callers(e, chunk, peer, tensor, which != ITH_TENSOR_Q);
            range in = buffered(e, chunk, peer, buffers[which], which != ITH_TENSOR_Q);
            list_blocks(e->setting, chunk->sends, &chunk->send_count, peer, &out);
            list_blocks(e->setting, chunk->receives, &chunk->receive_count, peer, &in);
        }
    }
    return ith_transit_post(e->transit, e->setting->ulysses_comm, chunk->sends, chunk->send_count, chunk->send_count,
                            chunk->receives, chunk->receive_count, &chunk->request);
}

static ith_status post_outputs(ith_exchange *e, ith_exchanged *chunk, const ith_attn_tensors *tensors)
{
    ith_rows tensor = ith_rows_of(e->setting, ITH_TENSOR_O, tensors);
    chunk->send_count = chunk->receive_count = 0;
    for (int peer = 0; peer < e->setting->ulysses; peer++) {
        range out = buffered(e, chunk, peer, chunk->q_segment.o, false);
        range in = callers(e, chunk, peer, tensor, false);
        list_blocks(e->setting, chunk->sends, &chunk->send_count, peer, &out);
        list_blocks(e->setting, chunk->receives, &chunk->receive_count, peer, &in);
    }
    int counted = chunk->send_count;
    for (int peer = 0; tensors->lse && peer < e->setting->ulysses; peer++)
        list_lse(e, chunk, peer, tensors->lse);
    return ith_transit_post(e->transit, e->setting->ulysses_comm, chunk->sends, chunk->send_count, counted,
                            chunk->receives, chunk->receive_count, &chunk->request);
}

void ith_exchange_progress(void *user)
{
    ith_exchange *e = user;
    for (int i = 0; i < ITH_EXCHANGE_BUFFERS; i++)
        ith_transit_test(e->transit, e->setting->ulysses_comm, &e->buffers[i].request);
}

/* Waits until a buffer is free, then has it take the inputs of a chunk. */
static ith_status begin_chunk(ith_exchange *e, int index, const ith_attn_tensors *tensors)
{
    int buffer = index % buffer_count(e->setting);
    ith_exchanged *chunk = &e->buffers[buffer];
    ith_status status = ith_transit_wait(e->transit, e->setting->ulysses_comm, &chunk->request);
    if (status)
        return status;
    describe_chunk(e, index, tensors->lse != NULL, e->lse[buffer], chunk);
    return post_inputs(e, chunk, tensors);
}

ith_status ith_exchange_run(ith_exchange *e, const ith_attn_tensors *tensors, ith_chunk_fn compute, void *user,
                            ith_transit *transit)
{
    int chunks = ith_chunk_count(e->setting), buffers = buffer_count(e->setting);
    e->transit = transit;
    for (int i = 0; i < ITH_EXCHANGE_BUFFERS; i++)
        e->buffers[i].request = NULL;
    ith_status status = begin_chunk(e, 0, tensors);
    for (int i = 0; !status && i < chunks; i++) {
        ith_exchanged *chunk = &e->buffers[i % buffers];
        status = ith_transit_wait(e->transit, e->setting->ulysses_comm, &chunk->request);
        if (!status && i + 1 < chunks)
            status = begin_chunk(e, i + 1, tensors);
        if (!status)
            status = compute(user, chunk, tensors);
        if (!status)
            status = post_outputs(e, chunk, tensors);
    }
    for (int i = 0; !status && i < buffers; i++)
        status = ith_transit_wait(e->transit, e->setting->ulysses_comm, &e->buffers[i].request);
    return status;
}
