/* SPDX-License-Identifier: Apache-2.0 */
/* Ulysses attention (arXiv:2309.14509): sequence shards for head shards, all keys for some heads, and back.
 * It is the ring of length one in ulysses_ring.c. */
#include "strategy.h"

static ith_status applicable(const ith_attn_setting *s)
{
    if (s->ring == 1)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "strategy ulysses has all %d ranks on its axis: ulysses must be %d and ring 1; ulysses_ring takes "
                    "a mesh of ulysses %d x ring %d",
                    s->ulysses * s->ring, s->ulysses * s->ring, s->ulysses, s->ring);
}

static void lay_out(const ith_attn_setting *s, ith_arena *arena, ith_strategy_state *state)
{
    ith_strategy_ulysses_ring.lay_out(s, arena, state);
}

static void init(ith_strategy_state *state)
{
    ith_strategy_ulysses_ring.init(state);
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    return ith_strategy_ulysses_ring.execute(state, tensors);
}

const ith_strategy_ops ith_strategy_ulysses = {
    .strategy = ITH_STRATEGY_ULYSSES,
    .name = "ulysses",
    .applicable = applicable,
    .lay_out = lay_out,
    .init = init,
    .execute = execute,
};
