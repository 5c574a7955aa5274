/* The contract of strategies. A strategy is one file and one line of strategies.inc.
 *
 * create and execute are given a setting in which every choice is made; create only allocates (the plan has made the
 * groups and lets the ranks agree about the outcome), execute neither allocates nor decides. execute is collective over
 * the setting's two groups; what it is given has been checked. */
#ifndef ITH_ATTENTION_STRATEGY_H
#define ITH_ATTENTION_STRATEGY_H

#include "setting.h"

typedef struct ith_strategy_state {
    const ith_attn_setting *setting;
    struct ith_exchange *exchange; /* each NULL where the strategy does without */
    struct ith_hops *hops;
    struct ith_sweep *sweep;
} ith_strategy_state;

typedef struct ith_strategy_ops {
    ith_strategy strategy;
    const char *name;
    /* Whether the setting's mesh is one for this strategy; a sentence with the nearest that is, if not. */
    ith_status (*applicable)(const ith_attn_setting *setting);
    /* Fills in a zeroed state; what it made before it failed is destroyed by `destroy`. */
    ith_status (*create)(const ith_attn_setting *setting, ith_strategy_state *state);
    ith_status (*execute)(ith_strategy_state *state, const ith_attn_tensors *tensors);
    /* Bytes that this rank sends to others in one execution, without lse. */
    int64_t (*sent_bytes)(const ith_strategy_state *state);
    void (*destroy)(ith_strategy_state *state);
} ith_strategy_ops;

#define ITH_STRATEGY(symbol) extern const ith_strategy_ops symbol;
#include "strategies.inc"
#undef ITH_STRATEGY

/* NULL if there is none. */
const ith_strategy_ops *ith_strategy_find(ith_strategy strategy);

/* Shared by the strategies' files. */
int64_t ith_strategy_sent_bytes(const ith_strategy_state *state);
void ith_strategy_destroy(ith_strategy_state *state);

#endif
