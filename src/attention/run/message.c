/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the moves of a schedule (rows that travel between two ranks) into transfers of strided memory, posts the
 * transfers, and times and counts them (message.h). */
#include "message.h"

#include "../../base/clock.h"
#include "../../base/trace.h"

#include <math.h>

/* ---- Moves as regions ------------------------------------------------------------------------------------------ */

/* Whether a place names the tensors of the ranks on this rank's ulysses axis (exchange MIXED), and not a buffer. */
static bool on_axis(const ith_attn_setting *s, int place)
{
    return s->exchange == ITH_EXCHANGE_MIXED && place >= ITH_PLACE_CHUNK && place < ITH_PLACE_TRAVELLING;
}

/* The rows of a tensor in a place: in the caller's tensors, or in a buffer that holds heads [first, first + heads). */
static ith_rows rows_in(const ith_messages *m, int place, ith_attn_tensor tensor, int64_t first, int64_t heads)
{
    if (place == ITH_PLACE_CALLER)
        return ith_rows_of(m->setting, tensor, m->tensors);
    return ith_rows_in_buffer(m->setting, m->buffers[place][tensor], first, heads);
}

/* The source or the destination of lse that is sent between two ranks (a move). The caller's lse has the shape [B, H,
 * rows of this rank]; a buffer's has the shape [heads, rows of all ranks on this ulysses axis]. */
static ith_region lse_region(const ith_messages *m, const ith_move *move)
{
    const ith_attn_setting *s = m->setting;
    bool at_caller = move->place == ITH_PLACE_CALLER;
    int64_t size = sizeof(float), rows = ith_schedule_shard(s, s->problem.q_len, s->rank / s->ulysses).rows;
    float *data = m->buffers[move->place][ITH_TENSOR_LSE];
    if (at_caller) {
        rows = s->q_rows;
        data = m->tensors->lse + move->first * rows;
    }
    return (ith_region){.data = data + move->at,
                        .count = {move->heads, 1},
                        .stride = {rows * size, 0},
                        .bytes = move->rows.rows * size};
}

/* The source or the destination of heads [n, n + heads) of q, k, v or o that are sent between two ranks (a move).
 * memory: the rows of the tensor in the place of the move. */
static ith_region rows_region(const ith_attn_setting *s, const ith_move *move, const ith_rows *memory, int64_t n,
                              int64_t heads)
{
    return (ith_region){.data = ith_rows_at(s, memory, n, move->at),
                        .count = {move->rows.rows, 1},
                        .stride = {memory->row_stride * s->element_bytes, 0},
                        .bytes = heads * s->problem.head_dim * s->element_bytes};
}

/* Writes the regions (strided pieces of memory) that a move consists of to list and returns their number. memory: the
 * rows of the tensor in the place of the move; unused for lse. */
static int list_regions(const ith_messages *m, const ith_move *move, const ith_rows *memory, ith_transfer *list)
{
    const ith_attn_problem *p = &m->setting->problem;
    int64_t of_entry = ith_tensor_is_kv(move->tensor) ? p->kv_heads : p->heads, n = move->first;
    bool lse = move->tensor == ITH_TENSOR_LSE;
    int count = lse && !m->tensors->lse ? 0 : (int)ith_move_regions(m->setting, move);
    for (int i = 0; i < count; i++) {
        int64_t next = lse ? 0 : ith_min64((n / of_entry + 1) * of_entry, move->first + move->heads);
        list[i].peer = move->peer;
        list[i].region = lse ? lse_region(m, move) : rows_region(m->setting, move, memory, n, next - n);
        n = next;
    }
    return count;
}

/* The number of parts of a move in an exchange: the first hop of a mixed exchange has one for each rank of the ulysses
 * axis, in whose tensors the rows lie; other moves have one. */
static int part_count(const ith_attn_setting *s, const ith_step *step)
{
    return s->exchange == ITH_EXCHANGE_MIXED && step->hop == 0 ? s->ulysses : 1;
}

/* Lists the regions of a move, as list_regions does. In the first hop of a mixed exchange each part of the move has its
 * own regions, on the receiver too, so that the regions of both sides correspond. */
static int list_parts(const ith_messages *m, const ith_step *step, const ith_move *move, bool sent, ith_transfer *list)
{
    const ith_attn_setting *s = m->setting;
    int parts = part_count(s, step), owner = (sent ? s->rank / s->ulysses : move->peer) * s->ulysses, count = 0;
    ith_rows memory = {0};
    if (!on_axis(s, move->place) && move->tensor != ITH_TENSOR_LSE)
        memory = rows_in(m, move->place, move->tensor, move->first, move->heads);
    if (parts == 1)
        return list_regions(m, move, &memory, list);
    for (int u = 0; u < parts && move->heads > 0; u++) {
        ith_move part = *move;
        ith_share(s->problem.kv_len, s->ulysses * s->ring, owner + u, &part.rows.begin, &part.rows.rows);
        part.at = part.rows.begin - move->rows.begin;
        if (on_axis(s, move->place)) {
            memory = move->tensor == ITH_TENSOR_K ? m->axis_kv[u].k : m->axis_kv[u].v;
            part.at = 0;
        }
        count += list_regions(m, &part, &memory, list + count);
    }
    return count;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

void ith_messages_widen(ith_messages *m, const ith_schedule *schedule, const ith_step *step)
{
    int64_t regions[2] = {0}, bytes[2] = {0}, lse_bytes[2] = {0};
    for (int i = 0; i < step->groups; i++)
        for (int sent = 0; sent < 2; sent++) {
            const ith_move_group group = ith_schedule_group(schedule, step, sent, i);
            int64_t *size = &m->sizes[group.place][group.tensor];
            if (!on_axis(schedule->setting, group.place))
                *size = ith_max64(*size, group.extent);
            regions[sent] += group.regions * part_count(schedule->setting, step);
            if (group.tensor == ITH_TENSOR_LSE)
                lse_bytes[sent] += group.vectors * (int64_t)sizeof(float);
            else
                bytes[sent] += group.vectors * ith_travel_bytes(schedule->setting, group.tensor);
        }
    ith_posted *p = &m->exchanges[step->exchange];
    p->used = true;
    p->in_bytes = ith_max64(p->in_bytes, bytes[0]);
    p->out_bytes = ith_max64(p->out_bytes, bytes[1]);
    p->most = (ith_carried_sizes){.out_bytes = ith_max64(p->most.out_bytes, bytes[1] + lse_bytes[1]),
                                  .in_bytes = ith_max64(p->most.in_bytes, bytes[0] + lse_bytes[0]),
                                  .sends = ith_max64(p->most.sends, regions[1]),
                                  .receives = ith_max64(p->most.receives, regions[0])};
}

void ith_messages_lay_out(ith_messages *m, ith_plan_memory *memory)
{
    const ith_attn_setting *s = m->setting;
    ith_arena *const arena = &memory->host, *const rows = s->device ? &memory->device : arena;
    for (int place = ITH_PLACE_CALLER + 1; place < ITH_PLACES; place++)
        for (int tensor = 0; tensor < ITH_TENSORS; tensor++) {
            int64_t bytes = tensor == ITH_TENSOR_LSE ? (int64_t)sizeof(float) : s->problem.head_dim * s->element_bytes;
            m->buffers[place][tensor] = ith_arena_take(rows, m->sizes[place][tensor], bytes);
        }
    for (int i = 0; i < ITH_EXCHANGES; i++) {
        ith_posted *p = &m->exchanges[i];
        arena->overflow |= p->most.sends > INT32_MAX || p->most.receives > INT32_MAX;
        p->sends = ith_arena_take(arena, p->most.sends, sizeof *p->sends);
        p->receives = ith_arena_take(arena, p->most.receives, sizeof *p->receives);
        if (s->device && p->used)
            ith_carrier_lay_out(&m->carrier, i, &p->most, memory);
        if (s->compress == ITH_COMPRESS_OFF)
            continue;
        p->out = ith_arena_take(arena, p->out_bytes, 1);
        p->in = ith_arena_take(arena, p->in_bytes, 1);
        p->restored = ith_arena_take(arena, p->most.receives, sizeof *p->restored);
    }
}

void ith_messages_use_axis(ith_messages *m, const ith_q_segment *q, const ith_kv_segment *kv)
{
    m->axis_q = q;
    m->axis_kv = kv;
}

/* ---- Exchanges ------------------------------------------------------------------------------------------------- */

static ith_comm *comm_of(const ith_messages *m, int exchange)
{
    return exchange == ITH_EXCHANGE_HOP ? m->setting->ring_comm : m->setting->ulysses_comm;
}

void ith_messages_begin(ith_messages *m, const ith_attn_tensors *tensors, ith_plan_counters *counters)
{
    m->tensors = tensors;
    m->counters = counters;
    m->under_way = 0;
    m->status = ITH_OK;
    ith_carrier_begin(&m->carrier);
    for (int i = 0; i < ITH_EXCHANGES; i++) {
        m->exchanges[i].request = NULL;
        m->exchanges[i].restored_count = 0;
    }
}

void ith_messages_end(const ith_messages *m)
{
    if (m->compressed.norm > 0)
        m->counters->compression_error = sqrt(m->compressed.error / m->compressed.norm);
    if (m->counters->exchange_seconds > 0)
        ith_trace_counter(m->setting->context, "share of exchanges hidden",
                          1 - m->counters->waiting_seconds / m->counters->exchange_seconds);
}

/* Counts an exchange that has begun. If it is the only one under way, starts the clock of the time of exchanges. */
static void begin_exchange(ith_messages *m)
{
    if (m->under_way++ > 0)
        return;
    m->since_seconds = ith_clock_seconds();
    m->traced = ith_trace_begin(m->setting->context);
}

/* Counts an exchange that ended at time `now`. If it was the last one under way, stops the clock. */
static void end_exchange(ith_messages *m, double now)
{
    if (--m->under_way > 0)
        return;
    m->counters->exchange_seconds += now - m->since_seconds;
    ith_trace_end(m->setting->context, m->traced, "under way", ITH_TRACE_EXCHANGE);
}

/* Replaces the regions of some sends by messages that are compressed now, at byte *at of p->out. */
static void compress_sends(ith_messages *m, const ith_posted *p, ith_attn_tensor tensor, ith_transfer *sends, int count,
                           int64_t *at)
{
    for (int i = 0; i < count; i++) {
        char *message = p->out + *at;
        int64_t bytes = ith_compress_region(m->setting, tensor, &sends[i].region, message, &m->compressed);
        sends[i].region = ith_region_of(message, bytes);
        *at += bytes;
    }
}

/* Replaces the regions of some receives by messages, at byte *at of p->in, which are restored when they have
 * arrived. */
static void expect_compressed(const ith_messages *m, ith_posted *p, ith_attn_tensor tensor, ith_transfer *receives,
                              int count, int64_t *at)
{
    const int64_t vector = m->setting->problem.head_dim * m->setting->element_bytes;
    for (int i = 0; i < count; i++) {
        const ith_region region = receives[i].region;
        const int64_t bytes = ith_region_bytes(&region) / vector * ith_travel_bytes(m->setting, tensor);
        p->restored[p->restored_count++] = (ith_restored){tensor, region, p->in + *at};
        receives[i].region = ith_region_of(p->in + *at, bytes);
        *at += bytes;
    }
}

/* Restores the messages of an exchange that has ended. */
static void restore(const ith_messages *m, ith_posted *p)
{
    for (int i = 0; i < p->restored_count; i++)
        ith_decompress_region(m->setting, p->restored[i].tensor, p->restored[i].message, &p->restored[i].region);
    p->restored_count = 0;
}

/* Whether a move brings rows of q, k, v or o to another rank. Only these are compressed, and count as sent. */
static bool crosses(const ith_move *move, const ith_comm *comm)
{
    return move->tensor != ITH_TENSOR_LSE && move->peer != comm->rank;
}

/* Lists the transfers that this rank sends in a POST step, and compresses their rows if the setting says so. Returns
 * their number. *bytes: the bytes of q, k, v and o that go to other ranks. */
static int list_sends(ith_messages *m, const ith_posted *p, const ith_schedule *schedule, const ith_step *step,
                      int64_t *bytes)
{
    int count = 0;
    int64_t at = 0;
    *bytes = 0;
    for (int i = 0; i < step->moves; i++) {
        const ith_move move = ith_schedule_move(schedule, step, true, i);
        ith_transfer *sends = p->sends + count;
        const int regions = list_parts(m, step, &move, true, sends);
        count += regions;
        if (!crosses(&move, comm_of(m, step->exchange)))
            continue;
        if (m->setting->compress != ITH_COMPRESS_OFF)
            compress_sends(m, p, move.tensor, sends, regions, &at);
        for (int n = 0; n < regions; n++)
            *bytes += ith_region_bytes(&sends[n].region);
    }
    return count;
}

/* Lists the transfers that this rank receives in a POST step. Returns their number. */
static int list_receives(const ith_messages *m, ith_posted *p, const ith_schedule *schedule, const ith_step *step)
{
    int count = 0;
    int64_t at = 0;
    for (int i = 0; i < step->moves; i++) {
        const ith_move move = ith_schedule_move(schedule, step, false, i);
        ith_transfer *receives = p->receives + count;
        const int regions = list_parts(m, step, &move, false, receives);
        count += regions;
        if (m->setting->compress != ITH_COMPRESS_OFF && crosses(&move, comm_of(m, step->exchange)))
            expect_compressed(m, p, move.tensor, receives, regions, &at);
    }
    return count;
}

ith_status ith_messages_post(ith_messages *m, const ith_schedule *schedule, const ith_step *step, _Atomic int64_t *sent)
{
    ith_posted *p = &m->exchanges[step->exchange];
    ith_comm *comm = comm_of(m, step->exchange);
    int64_t bytes;
    if (m->status)
        return m->status;
    const int sends = list_sends(m, p, schedule, step, &bytes), receives = list_receives(m, p, schedule, step);
    if (m->setting->device)
        m->status = ith_carrier_post(&m->carrier, step->exchange, comm, p->sends, sends, p->receives, receives);
    else
        m->status = ith_comm_post(comm, p->sends, sends, p->receives, receives, &p->request);
    if (m->status)
        return m->status;
    atomic_fetch_add_explicit(sent, bytes, memory_order_relaxed);
    begin_exchange(m);
    return ITH_OK;
}

ith_status ith_messages_wait(ith_messages *m, int exchange)
{
    ith_posted *p = &m->exchanges[exchange];
    if (m->setting->device ? ith_carrier_is_under_way(&m->carrier, exchange) : p->request != NULL) {
        double start = ith_clock_seconds();
        ith_status status = m->setting->device ? ith_carrier_wait(&m->carrier, exchange)
                                               : ith_comm_wait(comm_of(m, exchange), &p->request);
        double now = ith_clock_seconds();
        end_exchange(m, now);
        m->counters->waiting_seconds += now - start;
        m->status = m->status ? m->status : status;
    }
    if (!m->status)
        restore(m, p);
    return m->status;
}

void ith_messages_progress(void *user)
{
    ith_messages *m = user;
    /* the hop along the ring comes first: it is needed soonest */
    for (int i = ITH_EXCHANGES - 1; i >= 0; i--) {
        bool done = false;
        if (!m->exchanges[i].request || m->status)
            continue;
        m->status = ith_comm_test(comm_of(m, i), &m->exchanges[i].request, &done);
        if (done)
            end_exchange(m, ith_clock_seconds());
    }
}

/* ---- Segments -------------------------------------------------------------------------------------------------- */

static ith_queries find_queries(ith_messages *m, const ith_step *step)
{
    const ith_heads *h = &step->heads;
    bool at_caller = step->q_place == ITH_PLACE_CALLER;
    if (on_axis(m->setting, step->q_place))
        return (ith_queries){m->axis_q, m->setting->ulysses, step->q.rows};
    m->q = (ith_q_segment){.q = rows_in(m, step->q_place, ITH_TENSOR_Q, h->first, h->count),
                           .o = rows_in(m, step->q_place, ITH_TENSOR_O, h->first, h->count),
                           .lse = m->tensors->lse,
                           .begin = step->q.begin,
                           .rows = step->q.rows};
    if (!at_caller && m->tensors->lse) {
        m->q.lse = m->buffers[step->q_place][ITH_TENSOR_LSE];
        m->q.lse_first = h->first;
    }
    return (ith_queries){&m->q, 1, m->q.rows};
}

void ith_messages_find(ith_messages *m, const ith_step *step, ith_queries *queries, ith_shard *shard)
{
    const ith_heads *h = &step->heads;
    *queries = find_queries(m, step);
    *shard = (ith_shard){.segments = &m->kv, .count = 1, .begin = step->kv.begin, .rows = step->kv.rows};
    if (on_axis(m->setting, step->kv_place)) {
        shard->segments = m->axis_kv;
        shard->count = m->setting->ulysses;
        return;
    }
    m->kv = (ith_kv_segment){.k = rows_in(m, step->kv_place, ITH_TENSOR_K, h->kv_first, h->kv_heads),
                             .v = rows_in(m, step->kv_place, ITH_TENSOR_V, h->kv_first, h->kv_heads),
                             .begin = step->kv.begin,
                             .rows = step->kv.rows};
}
