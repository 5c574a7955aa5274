/* SPDX-License-Identifier: Apache-2.0 */
/* The table of strategies, and what their files share. */
#include "strategy.h"

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

ith_q_segment ith_strategy_own_queries(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    ith_q_segment own = {
        .q = ith_rows_of(s, ITH_TENSOR_Q, tensors), .o = ith_rows_of(s, ITH_TENSOR_O, tensors), .lse = tensors->lse};
    ith_share(s->problem.q_len, s->ulysses * s->ring, s->ring_index * s->ulysses + s->ulysses_index, &own.begin,
              &own.rows);
    return own;
}

ith_kv_segment ith_strategy_own_keys(const ith_attn_setting *s, const ith_attn_tensors *tensors)
{
    ith_kv_segment own = {
        .k = ith_rows_of(s, ITH_TENSOR_K, tensors), .v = ith_rows_of(s, ITH_TENSOR_V, tensors), .rows = s->kv_rows};
    int64_t rows;
    if (!s->problem.replicated_kv)
        ith_share(s->problem.kv_len, s->ulysses * s->ring, s->ring_index * s->ulysses + s->ulysses_index, &own.begin,
                  &rows);
    return own;
}
