/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values travel along all ranks; queries stay. In one process they are read where they lie. */
#include "strategy.h"

static ith_status applicable(const ith_attn_setting *s)
{
    if (s->ulysses == 1)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "strategy ring has all %d ranks on its axis: ring must be %d and ulysses 1; ulysses_ring takes a "
                    "mesh of ulysses %d x ring %d",
                    s->ulysses * s->ring, s->ulysses * s->ring, s->ulysses, s->ring);
}

static void lay_out(const ith_attn_setting *s, ith_arena *arena, ith_strategy_state *state)
{
    const ith_attn_problem *p = &s->problem;
    ith_sweep_shape shape = {.heads = p->batch * p->heads,
                             .kv_heads = p->batch * p->kv_heads,
                             .q_rows = s->q_rows,
                             .shard_rows = ith_hops_most_rows(s),
                             .keeps_state = s->ring > 1};
    if (s->exchange == ITH_EXCHANGE_IN_PLACE) {
        ith_in_place_lay_out(s, arena, &state->in_place);
        shape = ith_in_place_shape(s);
    } else {
        ith_hops_lay_out(s, shape.kv_heads, false, arena, &state->hops);
    }
    ith_sweep_lay_out(s, &shape, arena, &state->sweep);
}

static void init(ith_strategy_state *state)
{
    if (state->setting->exchange == ITH_EXCHANGE_IN_PLACE)
        ith_in_place_init(&state->in_place);
    else
        ith_hops_init(&state->hops);
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    const ith_attn_setting *s = state->setting;
    if (s->exchange == ITH_EXCHANGE_IN_PLACE)
        return ith_in_place_run(&state->in_place, &state->sweep, tensors, &state->counters);
    ith_q_segment q = ith_strategy_own_queries(s, tensors);
    ith_kv_segment kv = ith_strategy_own_keys(s, tensors);
    ith_queries queries = {&q, 1, q.rows};
    ith_hops_job job = {.heads = ith_heads_of(&s->problem, 0, s->problem.batch * s->problem.heads),
                        .queries = &queries,
                        .own = &kv,
                        .row_heads = s->problem.kv_heads,
                        .tensors = tensors};
    ith_transit_begin(&state->transit, &state->counters);
    ith_status status = ith_hops_run(&state->hops, &state->sweep, &job, &state->transit);
    ith_transit_end(&state->transit, s->context);
    if (!status)
        ith_sweep_count(&state->sweep, &job.heads, &state->counters);
    return status;
}

const ith_strategy_ops ith_strategy_ring = {
    .strategy = ITH_STRATEGY_RING,
    .name = "ring",
    .applicable = applicable,
    .lay_out = lay_out,
    .init = init,
    .execute = execute,
};
