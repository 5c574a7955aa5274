/* All keys are at hand: one rank, or several whose keys and values are replicated, each with its own queries. */
#include "strategy.h"
#include "sweep.h"

static ith_status applicable(const ith_attn_setting *s)
{
    int ranks = s->ulysses * s->ring;
    if (ranks == 1 || s->problem.replicated_kv)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "strategy single is for one rank and there are %d: ulysses, ring and ulysses_ring spread over them",
                    ranks);
}

static ith_status create(const ith_attn_setting *s, ith_strategy_state *state)
{
    const ith_attn_problem *p = &s->problem;
    ith_sweep_shape shape = {.problems = p->batch * p->heads,
                             .keys_count = p->batch * p->kv_heads,
                             .q_rows = s->q_rows,
                             .most_keys = s->kv_rows};
    state->setting = s;
    return ith_sweep_create(s, &shape, &state->sweep);
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    const ith_attn_setting *s = state->setting;
    ith_shard shard = {.q = ith_rows_of(s, ITH_TENSOR_Q, tensors),
                       .k = ith_rows_of(s, ITH_TENSOR_K, tensors),
                       .v = ith_rows_of(s, ITH_TENSOR_V, tensors),
                       .o = ith_rows_of(s, ITH_TENSOR_O, tensors),
                       .lse = tensors->lse,
                       .key_bias = tensors->key_bias,
                       .keys = s->kv_rows,
                       .first = true,
                       .last = true};
    ith_sweep_run(state->sweep, &shard);
    return ITH_OK;
}

const ith_strategy_ops ith_strategy_single = {
    .strategy = ITH_STRATEGY_SINGLE,
    .name = "single",
    .applicable = applicable,
    .create = create,
    .execute = execute,
    .sent_bytes = ith_strategy_sent_bytes,
    .destroy = ith_strategy_destroy,
};
