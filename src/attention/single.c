/* SPDX-License-Identifier: Apache-2.0 */
/* All keys are at hand: one rank, or several whose keys and values are replicated, each with its own queries. */
#include "strategy.h"

static ith_status applicable(const ith_attn_setting *s)
{
    int ranks = s->ulysses * s->ring;
    if (ranks == 1 || s->problem.replicated_kv)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "strategy single is for one rank and there are %d: ulysses, ring and ulysses_ring spread over them",
                    ranks);
}

static void lay_out(const ith_attn_setting *s, ith_arena *arena, ith_strategy_state *state)
{
    const ith_attn_problem *p = &s->problem;
    ith_sweep_shape shape = {.heads = p->batch * p->heads,
                             .kv_heads = p->batch * p->kv_heads,
                             .q_rows = s->q_rows,
                             .shard_rows = s->kv_rows};
    ith_sweep_lay_out(s, &shape, arena, &state->sweep);
}

static void init(ith_strategy_state *state)
{
    (void)state; /* the sweep's memory is written before it is read */
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    const ith_attn_setting *s = state->setting;
    ith_q_segment q = ith_strategy_own_queries(s, tensors);
    ith_kv_segment kv = ith_strategy_own_keys(s, tensors);
    ith_queries queries = {&q, 1, q.rows};
    ith_shard shard = {&kv, 1, kv.begin, kv.rows};
    ith_sweep_job job = {.heads = ith_heads_of(&s->problem, 0, s->problem.batch * s->problem.heads),
                         .queries = &queries,
                         .shards = &shard,
                         .shard_count = 1,
                         .tensors = tensors,
                         .first = true,
                         .last = true};
    ith_status status = ith_sweep_prepare(&state->sweep, &job.heads, &queries, &shard, tensors);
    if (status)
        return status;
    ith_sweep_run(&state->sweep, &job);
    ith_sweep_count(&state->sweep, &job.heads, &state->counters);
    return ITH_OK;
}

const ith_strategy_ops ith_strategy_single = {
    .strategy = ITH_STRATEGY_SINGLE,
    .name = "single",
    .applicable = applicable,
    .lay_out = lay_out,
    .init = init,
    .execute = execute,
};
