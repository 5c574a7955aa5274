/* SPDX-License-Identifier: Apache-2.0 */
/* Ulysses inside, ring outside (arXiv:2405.07719): neighbours exchange sequence shards for head shards, what they then
 * hold together travels along the ring of such groups, and the results go back; chunk by chunk. In one process all of
 * it is read where it lies. */
#include "strategy.h"

static ith_status applicable(const ith_attn_setting *s)
{
    (void)s; /* any mesh: the planner calls ring 1 ulysses and ulysses 1 ring */
    return ITH_OK;
}

static void lay_out(const ith_attn_setting *s, ith_arena *arena, ith_strategy_state *state)
{
    if (s->exchange == ITH_EXCHANGE_IN_PLACE) {
        ith_sweep_shape shape = ith_in_place_shape(s);
        ith_in_place_lay_out(s, arena, &state->in_place);
        ith_sweep_lay_out(s, &shape, arena, &state->sweep);
        return;
    }
    ith_exchange_lay_out(s, arena, &state->exchange);
    ith_hops_lay_out(s, state->exchange.kv_heads, true, arena, &state->hops);
    ith_sweep_shape shape = {.heads = state->exchange.problems,
                             .kv_heads = state->exchange.kv_heads,
                             .q_rows = state->exchange.q_rows,
                             .shard_rows = ith_hops_most_rows(s),
                             .keeps_state = s->ring > 1};
    ith_sweep_lay_out(s, &shape, arena, &state->sweep);
}

static void init(ith_strategy_state *state)
{
    if (state->setting->exchange == ITH_EXCHANGE_IN_PLACE) {
        ith_in_place_init(&state->in_place);
        return;
    }
    ith_exchange_init(&state->exchange);
    ith_hops_init(&state->hops);
    state->hops.progress = ith_exchange_progress;
    state->hops.progress_user = &state->exchange;
}

/* A chunk whose inputs have come goes round the ring, which may be of length one. */
static ith_status compute_chunk(void *user, const ith_exchanged *chunk, const ith_attn_tensors *tensors)
{
    ith_strategy_state *state = user;
    ith_hops_job job = {.heads = chunk->heads,
                        .queries = &chunk->queries,
                        .own = &chunk->kv_segment,
                        .row_heads = chunk->kv_segment.k.heads,
                        .own_is_spare = true,
                        .tensors = tensors};
    ith_status status = ith_hops_run(&state->hops, &state->sweep, &job, &state->transit);
    if (!status)
        ith_sweep_count(&state->sweep, &chunk->heads, &state->counters);
    return status;
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    if (state->setting->exchange == ITH_EXCHANGE_IN_PLACE)
        return ith_in_place_run(&state->in_place, &state->sweep, tensors, &state->counters);
    ith_transit_begin(&state->transit, &state->counters);
    ith_status status = ith_exchange_run(&state->exchange, tensors, compute_chunk, state, &state->transit);
    ith_transit_end(&state->transit, state->setting->context);
    return status;
}

const ith_strategy_ops ith_strategy_ulysses_ring = {
    .strategy = ITH_STRATEGY_ULYSSES_RING,
    .name = "ulysses_ring",
    .applicable = applicable,
    .lay_out = lay_out,
    .init = init,
    .execute = execute,
};
