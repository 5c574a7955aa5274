/* Keys and values travel round all ranks; queries stay. */
#include "hops.h"
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

static ith_status create(const ith_attn_setting *s, ith_strategy_state *state)
{
    const ith_attn_problem *p = &s->problem;
    state->setting = s;
    ith_status status = ith_hops_create(s, p->batch * p->kv_heads, p->kv_heads, &state->hops);
    if (status)
        return status;
    ith_sweep_shape shape = {.problems = p->batch * p->heads,
                             .keys_count = p->batch * p->kv_heads,
                             .q_rows = s->q_rows,
                             .most_keys = ith_hops_most_keys(state->hops),
                             .several_shards = s->ring > 1};
    return ith_sweep_create(s, &shape, &state->sweep);
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    const ith_attn_setting *s = state->setting;
    ith_shard own = {.q = ith_rows_of(s, ITH_TENSOR_Q, tensors),
                     .k = ith_rows_of(s, ITH_TENSOR_K, tensors),
                     .v = ith_rows_of(s, ITH_TENSOR_V, tensors),
                     .o = ith_rows_of(s, ITH_TENSOR_O, tensors),
                     .lse = tensors->lse,
                     .key_bias = tensors->key_bias};
    return ith_hops_run(state->hops, state->sweep, &own);
}

const ith_strategy_ops ith_strategy_ring = {
    .strategy = ITH_STRATEGY_RING,
    .name = "ring",
    .applicable = applicable,
    .create = create,
    .execute = execute,
    .sent_bytes = ith_strategy_sent_bytes,
    .destroy = ith_strategy_destroy,
};
