/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of strategies. A strategy is one file and one line of strategies.inc.
 *
 * Everything is given a setting in which every choice is made. lay_out takes all memory from an arena and is called
 * twice: first to count it, then with it; init then fills in what execute finds there. execute neither allocates nor
 * decides, and is collective over the setting's groups; what it is given has been checked. */
#ifndef ITH_ATTENTION_STRATEGY_H
#define ITH_ATTENTION_STRATEGY_H

#include "exchange.h"
#include "fixed_m.h"
#include "hops.h"
#include "in_place.h"
#include "run/cpu/sweep.h"

typedef struct ith_strategy_state {
    const ith_attn_setting *setting;
    ith_exchange exchange; /* each used where the strategy and the setting ask for it */
    ith_in_place in_place;
    ith_hops hops;
    ith_sweep sweep;
    ith_transit transit;
    ith_plan_counters counters;
} ith_strategy_state;

typedef struct ith_strategy_ops {
    ith_strategy strategy;
    const char *name;
    /* Whether the setting's mesh is one for this strategy; a sentence with the nearest that is, if not. */
    ith_status (*applicable)(const ith_attn_setting *setting);
    void (*lay_out)(const ith_attn_setting *setting, ith_arena *arena, ith_strategy_state *state);
    void (*init)(ith_strategy_state *state);
    ith_status (*execute)(ith_strategy_state *state, const ith_attn_tensors *tensors);
} ith_strategy_ops;

#define ITH_STRATEGY(symbol) extern const ith_strategy_ops symbol;
#include "strategies.inc"
#undef ITH_STRATEGY

/* Shared by the strategies' files: the caller's own rows. */
ith_q_segment ith_strategy_own_queries(const ith_attn_setting *setting, const ith_attn_tensors *tensors);
ith_kv_segment ith_strategy_own_keys(const ith_attn_setting *setting, const ith_attn_tensors *tensors);

/* NULL if there is none. */
const ith_strategy_ops *ith_strategy_find(ith_strategy strategy);

#endif
