/* SPDX-License-Identifier: Apache-2.0 */
/* The table of strategies, the walk over a schedule, and the count of bytes that a schedule sends (schedule.h). */
#include "schedule.h"

#include "../../base/size.h"

static const ith_strategy_ops *const strategies[] = {
#define ITH_STRATEGY(symbol) &symbol,
#include "strategies.inc"
#undef ITH_STRATEGY
};

const ith_strategy_ops *ith_strategy_find(ith_strategy strategy)
{
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (strategies[i]->strategy == strategy)
            return strategies[i];
    return NULL;
}

const char *ith_strategy_name(ith_strategy strategy)
{
    const ith_strategy_ops *found = ith_strategy_find(strategy);
    if (found)
        return found->name;
    return strategy == ITH_STRATEGY_AUTO ? "auto" : "unknown";
}

ith_row_range ith_schedule_shard(const ith_attn_setting *s, int64_t length, int index)
{
    ith_row_range span;
    ith_stretch(length, s->ulysses * s->ring, index * s->ulysses, s->ulysses, &span.begin, &span.rows);
    return span;
}

ith_attn_setting ith_schedule_entries(const ith_attn_setting *setting, int64_t most)
{
    ith_attn_setting few = *setting;
    if (setting->strategy != ITH_STRATEGY_SINGLE && ith_chunks_by_entry(setting)) /* single has no chunks */
        few.problem.batch = ith_min64(few.problem.batch, most);
    return few;
}

ith_schedule ith_schedule_of(const ith_attn_setting *setting, int rank)
{
    int chunks = ith_chunk_count(setting);
    return (ith_schedule){.setting = setting,
                          .ops = ith_strategy_find(setting->strategy),
                          .ulysses_index = rank % setting->ulysses,
                          .ring_index = rank / setting->ulysses,
                          .chunks = chunks,
                          .buffers = chunks < ITH_CHUNK_BUFFERS ? chunks : ITH_CHUNK_BUFFERS,
                          .chunk = -1};
}

bool ith_schedule_next(ith_schedule *schedule, ith_step *step)
{
    return schedule->setting->problem.q_len > 0 && schedule->ops->next(schedule, step);
}

int ith_schedule_hops_alike(const ith_schedule *schedule)
{
    return schedule->ops->hops_alike ? schedule->ops->hops_alike(schedule) : 0;
}

void ith_schedule_skip_hops(ith_schedule *schedule, int count)
{
    if (count > 0)
        schedule->ops->skip_hops(schedule, count);
}

ith_move ith_schedule_move(const ith_schedule *schedule, const ith_step *step, bool sent, int index)
{
    return schedule->ops->move(schedule, step, sent, index);
}

ith_move_group ith_schedule_group(const ith_schedule *schedule, const ith_step *step, bool sent, int index)
{
    return schedule->ops->group(schedule, step, sent, index);
}

int64_t ith_move_regions(const ith_attn_setting *s, const ith_move *move)
{
    if (move->heads == 0 || move->rows.rows == 0)
        return 0;
    if (move->tensor == ITH_TENSOR_LSE)
        return 1;
    return ith_groups_of(move->first, move->heads,
                         ith_tensor_is_kv(move->tensor) ? s->problem.kv_heads : s->problem.heads);
}

bool ith_schedule_by_messages(const ith_attn_setting *s, int exchange)
{
    if (s->exchange == ITH_EXCHANGE_MIXED)
        return exchange == ITH_EXCHANGE_HOP;
    return s->exchange != ITH_EXCHANGE_IN_PLACE;
}

int64_t ith_schedule_read_bytes(const ith_schedule *schedule, const ith_step *step)
{
    const ith_attn_setting *s = schedule->setting;
    if (s->exchange != ITH_EXCHANGE_IN_PLACE || step->shard == schedule->ring_index)
        return 0;
    return 2 * ith_schedule_shard(s, s->problem.kv_len, schedule->ring_index).rows * step->heads.kv_heads *
           ith_travel_bytes(s, ITH_TENSOR_K);
}

/* Returns the bytes of everything that this rank sends to other ranks in a POST step, without lse. */
static int64_t posted(const ith_schedule *schedule, const ith_step *step)
{
    int64_t bytes = 0;
    for (int i = 0; i < step->groups; i++) {
        const ith_move_group group = ith_schedule_group(schedule, step, true, i);
        if (group.tensor != ITH_TENSOR_LSE)
            bytes += (group.vectors - group.kept) *
                     ith_sent_row_bytes(schedule->setting, group.tensor, step->exchange != ITH_EXCHANGE_HOP);
    }
    return bytes;
}

int64_t ith_schedule_sent_bytes(const ith_attn_setting *setting, int rank)
{
    const ith_attn_setting one = ith_schedule_entries(setting, 1);
    ith_schedule schedule = ith_schedule_of(&one, rank);
    bool in_place = setting->exchange == ITH_EXCHANGE_IN_PLACE;
    int64_t bytes = 0, before = 0; /* before: `bytes` at the end of the previous hop */
    for (ith_step step; ith_schedule_next(&schedule, &step);) {
        if (step.kind == ITH_STEP_POST && !(in_place && step.exchange == ITH_EXCHANGE_HOP))
            bytes += posted(&schedule, &step);
        if (step.kind == ITH_STEP_COMPUTE)
            bytes += ith_schedule_read_bytes(&schedule, &step);
        if (step.kind == ITH_STEP_WAIT && step.exchange == ITH_EXCHANGE_HOP) {
            /* the next hops that send as much as the hop that has ended */
            int alike = ith_schedule_hops_alike(&schedule);
            bytes += (bytes - before) * alike;
            ith_schedule_skip_hops(&schedule, alike);
            before = bytes;
        }
    }
    return bytes * (setting->problem.batch / one.problem.batch);
}
