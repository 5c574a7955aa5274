/* Ulysses inside, ring outside (arXiv:2405.07719): neighbours exchange sequence shards for head shards, what they then
 * hold together travels round the ring of such groups, and the results go back. */
#include "exchange.h"
#include "hops.h"
#include "strategy.h"

static ith_status applicable(const ith_attn_setting *s)
{
    (void)s; /* any mesh: ring 1 is ulysses, ulysses 1 is ring */
    return ITH_OK;
}

static ith_status create(const ith_attn_setting *s, ith_strategy_state *state)
{
    state->setting = s;
    ith_status status = ith_exchange_create(s, &state->exchange);
    if (status)
        return status;
    const ith_exchanged *e = ith_exchange_result(state->exchange);
    status = ith_hops_create(s, e->keys_count, e->keys_count, &state->hops);
    if (status)
        return status;
    ith_sweep_shape shape = {.first_problem = e->first_problem,
                             .problems = e->problems,
                             .first_keys = e->first_keys,
                             .keys_count = e->keys_count,
                             .q_rows = e->q_rows,
                             .most_keys = ith_hops_most_keys(state->hops),
                             .several_shards = s->ring > 1};
    return ith_sweep_create(s, &shape, &state->sweep);
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    ith_status status = ith_exchange_in(state->exchange, tensors);
    if (status)
        return status;
    const ith_exchanged *e = ith_exchange_result(state->exchange);
    ith_shard own = {
        .q = e->q, .k = e->k, .v = e->v, .o = e->o, .lse = tensors->lse ? e->lse : NULL, .key_bias = tensors->key_bias};
    status = ith_hops_run(state->hops, state->sweep, &own);
    return status ? status : ith_exchange_out(state->exchange, tensors);
}

const ith_strategy_ops ith_strategy_ulysses_ring = {
    .strategy = ITH_STRATEGY_ULYSSES_RING,
    .name = "ulysses_ring",
    .applicable = applicable,
    .create = create,
    .execute = execute,
    .sent_bytes = ith_strategy_sent_bytes,
    .destroy = ith_strategy_destroy,
};
