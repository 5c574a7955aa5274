/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds of computing and of exchanges (price.h). */
#include "price.h"

#include "../attention/run/cpu/sweep.h"
#include "../base/size.h"

#include <math.h>

/* ---- Loops over tasks ------------------------------------------------------------------------------------------ */

/* The tasks of a loop are followed one by one if there are at most this many units, and this many tasks for each. */
enum { EXACT_UNITS = 64, EXACT_ROUNDS = 32 };

/* One parallel loop over the blocks of queries of some heads (ith_sweep_tasks). */
typedef struct attend_loop {
    int64_t heads, q_rows, block_q;
    int64_t blocks;     /* number of blocks of a head; the last may be shorter */
    double row_seconds; /* time of a query */
} attend_loop;

/* The time of a task. */
static double task_seconds(const attend_loop *l, const ith_sweep_tasks *tasks, int64_t task)
{
    const int64_t part_rows = ith_sweep_part_rows(l->block_q, 1);
    int64_t block, part;
    ith_sweep_task(tasks, task, &block, &part);
    int64_t rows = ith_min64(l->block_q, l->q_rows - block % l->blocks * l->block_q);
    if (part >= 0)
        rows = ith_max64(ith_min64(part_rows, rows - part * part_rows), 0);
    return (double)rows * l->row_seconds;
}

/* The unit that is free first takes the next task. */
static double follow(const attend_loop *l, const ith_sweep_tasks *tasks, int64_t units)
{
    double end[EXACT_UNITS] = {0}, last = 0;
    for (int64_t task = 0; task < tasks->count; task++) {
        int64_t first = 0;
        for (int64_t i = 1; i < units; i++)
            first = end[i] < end[first] ? i : first;
        end[first] += task_seconds(l, tasks, task);
        last = fmax(last, end[first]);
    }
    return last;
}

/* The time of a loop whose tasks are taken by the units in turn. With many tasks, the last tasks are parts of blocks.
 * While they run, half of the units are without work on average. */
static double loop_seconds(const attend_loop *l, int64_t units)
{
    const ith_sweep_tasks tasks = ith_sweep_tasks_of(l->heads * l->blocks, units);
    const double sum = (double)(l->heads * l->q_rows) * l->row_seconds;
    if (units == 1)
        return sum;
    if (units <= EXACT_UNITS && tasks.count <= EXACT_ROUNDS * units)
        return follow(l, &tasks, units);
    double longest = (double)ith_min64(l->q_rows, ith_sweep_part_rows(l->block_q, 1)) * l->row_seconds;
    return fmax(sum / (double)units + longest * (double)(units - 1) / (double)(2 * units), longest);
}

/* ---- Computing ------------------------------------------------------------------------------------------------- */

int64_t ith_price_blocks(const ith_price *price, int64_t rows)
{
    return ith_max64(ith_div_up(rows, price->tiles.block_kv), 1);
}

/* The bytes of one row of one head in memory. */
static double vector_bytes(const ith_attn_setting *s)
{
    return (double)(s->problem.head_dim * s->element_bytes);
}

/* The number of kv heads whose keys are packed before their queries attend. */
static int64_t heads_together(const ith_price *price, int64_t kv_heads, int64_t q_rows)
{
    bool for_all = price->setting.exchange == ITH_EXCHANGE_IN_PLACE && price->setting.ring > 1;
    if (for_all)
        return ith_max64(kv_heads, 1);
    return ith_sweep_heads_together(&price->setting.problem, kv_heads, q_rows, price->tiles.block_q, price->units);
}

double ith_price_attend(const ith_price *price, const ith_heads *heads, int64_t q_rows, double keys, double blocks)
{
    const ith_attn_problem *p = &price->setting.problem;
    const ith_machine_attention *rates = &price->row;
    int64_t block = price->tiles.block_q;
    double product = 4 * keys * (double)p->head_dim / (rates->gflops * 1e9);
    double calls = blocks * rates->call_seconds / (double)(rates->block_q ? rates->block_q : block);
    double row = (product + calls) / price->unit_rate, seconds = 0;
    if (heads->count == 0)
        return 0;
    attend_loop loop = {.q_rows = q_rows, .block_q = block, .blocks = ith_div_up(q_rows, block), .row_seconds = row};
    int64_t groups = ith_div_up(heads->kv_heads, heads_together(price, heads->kv_heads, q_rows));
    for (int i = 0; i < 2; i++) { /* groups differ by one head at most: first the larger ones */
        int64_t count = i ? groups - heads->count % groups : heads->count % groups;
        loop.heads = heads->count / groups + !i;
        if (count > 0 && loop.heads > 0)
            seconds += (double)count * loop_seconds(&loop, price->units);
    }
    return seconds;
}

/* The rate at which a rank's own unit copies memory; 0: copies take no time. */
static double copy_rate(const ith_price *price)
{
    return price->view->machine.level_count ? price->view->levels[0].copy_bytes_per_second * price->unit_rate : 0;
}

double ith_price_state(const ith_price *price, const ith_heads *heads, int64_t q_rows)
{
    double row = (double)(price->setting.problem.head_dim + 2) * sizeof(float), rate = copy_rate(price);
    return rate > 0 ? (double)heads->count * (double)q_rows * row / (rate * (double)price->units) : 0;
}

double ith_price_pack(const ith_price *price, int64_t kv_heads, int64_t rows)
{
    double bytes = 2 * (double)kv_heads * (double)rows * vector_bytes(&price->setting);
    if (price->row.pack_bytes_per_second == 0)
        return 0;
    return bytes / (price->row.pack_bytes_per_second * price->unit_rate * (double)price->units);
}

double ith_price_offsets(const ith_price *price, const ith_heads *heads, int64_t q_rows, int64_t kv_rows)
{
    const ith_attn_problem *p = &price->setting.problem;
    double rows = (double)heads->count * (double)q_rows + 2 * (double)heads->kv_heads * (double)kv_rows;
    if (price->row.offset_bytes_per_second == 0 || p->mask == ITH_MASK_ADDITIVE)
        return 0;
    return rows * vector_bytes(&price->setting) /
           (price->row.offset_bytes_per_second * price->unit_rate * (double)price->units);
}

/* ---- Traffic of the ulysses axis --------------------------------------------------------------------------------- */

/* The tensors that an exchange moves: *first to *last (ith_attn_tensor). */
static void find_tensors(const ith_step *step, int *first, int *last)
{
    const bool hop = step->exchange == ITH_EXCHANGE_HOP, outputs = !hop && step->outputs;
    *first = outputs ? ITH_TENSOR_O : hop ? ITH_TENSOR_K : ITH_TENSOR_Q;
    *last = outputs ? ITH_TENSOR_O : ITH_TENSOR_V;
}

/* Ranks [begin, end) of an axis, by their ulysses index; none if end <= begin. */
typedef struct part {
    int64_t begin, end;
} part;

/* The ranks of an axis among the ranks [begin, end) of all. axis: the first rank of the axis. */
static part part_of_axis(const ith_price *price, int64_t axis, int64_t begin, int64_t end)
{
    return (part){ith_max64(begin - axis, 0), ith_min64(end - axis, price->setting.ulysses)};
}

/* The bytes that the ranks `from` of a rank's axis send to its ranks `to` in an all-to-all. Inputs are rows of `from`
 * of the heads of `to`; outputs are rows of `to` of the heads of `from`. travels: counts the bytes of messages, which
 * may be compressed; otherwise the bytes in memory. */
static double axis_bytes(const ith_price *price, const ith_schedule *schedule, const ith_step *step, bool travels,
                         part from, part to)
{
    const ith_attn_setting *s = &price->setting;
    const ith_attn_problem *p = &s->problem;
    const part owners = step->outputs ? to : from, attending = step->outputs ? from : to;
    const int first_rank = schedule->ring_index * s->ulysses + (int)owners.begin;
    double bytes = 0;
    int first, last;
    if (from.begin >= from.end || to.begin >= to.end)
        return 0;
    find_tensors(step, &first, &last);
    const ith_heads_run run = ith_chunk_run(s, step->chunk, attending.begin, attending.end);
    for (int tensor = first; tensor <= last; tensor++) {
        const bool kv = ith_tensor_is_kv((ith_attn_tensor)tensor);
        int64_t begin, rows;
        ith_stretch(kv ? p->kv_len : p->q_len, s->ulysses * s->ring, first_rank, (int)(owners.end - owners.begin),
                    &begin, &rows);
        const int64_t heads = kv ? ith_run_groups(&run, p->heads / p->kv_heads) : ith_run_heads(&run);
        const double vector = travels ? (double)ith_sent_row_bytes(s, (ith_attn_tensor)tensor, true) : vector_bytes(s);
        bytes += (double)rows * (double)heads * vector;
    }
    return bytes;
}

/* The bytes that a group, ranks [begin, end), sends to the other ranks of a larger group, [outer_begin, outer_end), in
 * the all-to-alls of all axes. Only the group's first axis and its last axis can have ranks outside the group. */
static double group_axis_bytes(const ith_price *price, const ith_schedule *schedule, const ith_step *step,
                               int64_t begin, int64_t end, int64_t outer_begin, int64_t outer_end)
{
    const int64_t ulysses = price->setting.ulysses, axes[2] = {begin / ulysses, (end - 1) / ulysses};
    double bytes = 0;
    for (int i = 0; i < (axes[0] == axes[1] ? 1 : 2); i++) {
        ith_schedule other = *schedule;
        other.ring_index = (int)axes[i];
        const int64_t axis = axes[i] * ulysses;
        const part inside = part_of_axis(price, axis, begin, end);
        bytes += axis_bytes(price, &other, step, true, inside, part_of_axis(price, axis, outer_begin, begin)) +
                 axis_bytes(price, &other, step, true, inside, part_of_axis(price, axis, end, outer_end));
    }
    return bytes;
}

/* The traffic of an all-to-all. The ranks that a level joins are consecutive, so their shares of rows and of heads are
 * summed by the rule of ith_share, without a loop over ranks. */
static void axis_traffic(const ith_price *price, const ith_schedule *schedule, const ith_step *step, ith_traffic *out)
{
    const int64_t axis = (int64_t)schedule->ring_index * price->setting.ulysses, own = axis + schedule->ulysses_index;
    const part mine = part_of_axis(price, axis, own, own + 1);
    int64_t begin = own, end = own + 1;
    double before[2] = {0};
    out->kept = axis_bytes(price, schedule, step, false, mine, mine);
    before[0] = before[1] = axis_bytes(price, schedule, step, true, mine, mine);
    for (int level = 0; level < price->view->machine.level_count; level++) {
        const int64_t inner_begin = begin, inner_end = end;
        ith_machine_joined(price->view, level, own, &begin, &end);
        const part joined = part_of_axis(price, axis, begin, end);
        const double sent = axis_bytes(price, schedule, step, true, mine, joined);
        const double received = axis_bytes(price, schedule, step, true, joined, mine);
        out->sent[level] = sent - before[0];
        out->received[level] = received - before[1];
        before[0] = sent, before[1] = received;
        if (price->view->levels[level].group_bytes_per_second > 0)
            out->group_sent[level] = group_axis_bytes(price, schedule, step, inner_begin, inner_end, begin, end);
    }
}

/* ---- Traffic of the ring ----------------------------------------------------------------------------------------- */

/* Adds the bytes that a rank sends in a hop, or receives, to bytes[level]. */
static void add_moves(const ith_price *price, const ith_schedule *schedule, const ith_step *step, bool sent,
                      double bytes[ITH_MACHINE_LEVELS])
{
    const ith_attn_setting *s = &price->setting;
    const int64_t own = (int64_t)schedule->ring_index * s->ulysses + schedule->ulysses_index;
    const double vectors = (double)(ith_travel_bytes(s, ITH_TENSOR_K) + ith_travel_bytes(s, ITH_TENSOR_V));
    for (int i = 0; i < step->moves; i += 2) { /* k, and v with the same rows */
        const ith_move move = ith_schedule_move(schedule, step, sent, i);
        const int64_t peer = (int64_t)move.peer * s->ulysses + schedule->ulysses_index;
        if (move.heads > 0)
            bytes[ith_machine_level_between(price->view, own, peer)] +=
                (double)move.rows.rows * (double)move.heads * vectors;
    }
}

/* The bytes that a rank's group of consecutive ranks sends over a level in a hop. Only the first and the last `ulysses`
 * ranks of the group have a peer outside it. */
static double group_hop_bytes(const ith_price *price, const ith_schedule *schedule, const ith_step *step, int level)
{
    const int64_t ulysses = price->setting.ulysses;
    double bytes[ITH_MACHINE_LEVELS] = {0};
    int64_t begin, end;
    ith_machine_joined(price->view, level - 1, schedule->ring_index * ulysses + schedule->ulysses_index, &begin, &end);
    for (int64_t rank = begin; rank < end; rank++) {
        if (rank == begin + ulysses && end - ulysses > rank)
            rank = end - ulysses;
        ith_schedule other = *schedule;
        other.ring_index = (int)(rank / ulysses), other.ulysses_index = (int)(rank % ulysses);
        add_moves(price, &other, step, true, bytes);
    }
    return bytes[level];
}

static void hop_traffic(const ith_price *price, const ith_schedule *schedule, const ith_step *step, ith_traffic *out)
{
    add_moves(price, schedule, step, true, out->sent);
    add_moves(price, schedule, step, false, out->received);
    for (int level = 0; level < price->view->machine.level_count; level++)
        if (ith_traffic_uses(out, level) && price->view->levels[level].group_bytes_per_second > 0)
            out->group_sent[level] = group_hop_bytes(price, schedule, step, level);
}

/* ---- Exchanges ------------------------------------------------------------------------------------------------- */

ith_traffic ith_price_traffic(const ith_price *price, const ith_schedule *schedule, const ith_step *step)
{
    ith_traffic traffic = {0};
    if (step->exchange == ITH_EXCHANGE_HOP)
        hop_traffic(price, schedule, step, &traffic);
    else
        axis_traffic(price, schedule, step, &traffic);
    return traffic;
}

double ith_traffic_sent(const ith_traffic *traffic)
{
    double sent = 0;
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        sent += traffic->sent[level];
    return sent;
}

bool ith_traffic_uses(const ith_traffic *traffic, int level)
{
    return traffic->sent[level] > 0 || traffic->received[level] > 0;
}

double ith_price_link(const ith_price *price, const ith_traffic *traffic, int level, bool group)
{
    const ith_machine_level *l = &price->view->levels[level];
    double seconds = 0;
    if (l->bytes_per_second > 0)
        seconds = fmax(traffic->sent[level], traffic->received[level]) / l->bytes_per_second;
    if (group && l->group_bytes_per_second > 0)
        seconds = fmax(seconds, traffic->group_sent[level] / l->group_bytes_per_second);
    return seconds;
}

double ith_price_setup(const ith_price *price, int level)
{
    return price->view->levels[level].latency_seconds + price->view->levels[level].setup_seconds;
}

double ith_price_copies(const ith_price *price, const ith_traffic *traffic)
{
    double seconds = 0;
    for (int level = 0; level < price->view->machine.level_count; level++)
        if (price->view->levels[level].copy_bytes_per_second > 0)
            seconds += traffic->received[level] / price->view->levels[level].copy_bytes_per_second;
    return seconds / price->unit_rate;
}

double ith_price_kept(const ith_price *price, const ith_traffic *traffic)
{
    double rate = copy_rate(price);
    return rate > 0 ? traffic->kept / rate : 0;
}

/* How many bytes in memory each byte of an exchange's messages stands for. Counts one row of one head of each tensor,
 * as if q had as many heads as k. */
static double expansion(const ith_price *price, const ith_step *step)
{
    const ith_attn_setting *s = &price->setting;
    double memory = 0, message = 0;
    int first, last;
    find_tensors(step, &first, &last);
    for (int tensor = first; tensor <= last; tensor++) {
        memory += vector_bytes(s);
        message += (double)ith_travel_bytes(s, (ith_attn_tensor)tensor);
    }
    return memory / message;
}

ith_compress_price ith_price_compression(const ith_price *price, const ith_step *step, const ith_traffic *traffic)
{
    const double rate = price->view->machine.row_bytes_per_second * price->unit_rate * (double)price->units;
    double received = 0;
    if (price->setting.compress == ITH_COMPRESS_OFF || rate == 0)
        return (ith_compress_price){0};
    for (int level = 0; level < ITH_MACHINE_LEVELS; level++)
        received += traffic->received[level];
    const double both = 1 + expansion(price, step);
    return (ith_compress_price){ith_traffic_sent(traffic) * both / rate, received * both / rate};
}

double ith_price_latency(const ith_price *price)
{
    const ith_machine_view *view = price->view;
    return view->ranks > 1 ? view->levels[ith_machine_level_between(view, 0, view->ranks - 1)].latency_seconds : 0;
}
