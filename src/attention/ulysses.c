/* Ulysses attention (arXiv:2309.14509): sequence shards for head shards, all keys for some heads, and back.
 * It is the ring of length one over the exchange that ulysses_ring.c describes. */
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

static ith_status create(const ith_attn_setting *s, ith_strategy_state *state)
{
    return ith_strategy_ulysses_ring.create(s, state);
}

static ith_status execute(ith_strategy_state *state, const ith_attn_tensors *tensors)
{
    return ith_strategy_ulysses_ring.execute(state, tensors);
}

const ith_strategy_ops ith_strategy_ulysses = {
    .strategy = ITH_STRATEGY_ULYSSES,
    .name = "ulysses",
    .applicable = applicable,
    .create = create,
    .execute = execute,
    .sent_bytes = ith_strategy_sent_bytes,
    .destroy = ith_strategy_destroy,
};
