/* The table of strategies, their names and the names that other software has for them. */
#include "strategy.h"

#include "exchange.h"
#include "hops.h"

#include <string.h>

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

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

ith_status ith_strategy_parse(ith_context *context, const char *name, ith_strategy *out)
{
    static const struct {
        const char *name;
        ith_strategy strategy;
    } known[] = {
        {"auto", ITH_STRATEGY_AUTO},
        {"single", ITH_STRATEGY_SINGLE},
        {"dot_product", ITH_STRATEGY_SINGLE},
        {"flash", ITH_STRATEGY_SINGLE},
        {"tokamax_flash", ITH_STRATEGY_SINGLE},
        {"ulysses", ITH_STRATEGY_ULYSSES},
        {"ulysses_custom", ITH_STRATEGY_ULYSSES},
        {"ring", ITH_STRATEGY_RING},
        {"ring_custom", ITH_STRATEGY_RING},
        {"tokamax_ring", ITH_STRATEGY_RING},
        {"tokamax_ring_custom", ITH_STRATEGY_RING},
        {"ulysses_ring", ITH_STRATEGY_ULYSSES_RING},
        {"ulysses_ring_custom", ITH_STRATEGY_ULYSSES_RING},
    };
    if (!name || !out)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s is NULL", name ? "out" : "name");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name)) {
            *out = known[i].strategy;
            return ITH_OK;
        }
    if (ends_with(name, "_bidir"))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "strategy '%s' asks for a ring in both directions, which this build lacks: leave out _bidir",
                        name);
    if (ends_with(name, "_fixed_m"))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "strategy '%s' asks for the fixed-m softmax, which this build lacks: leave out _fixed_m", name);
    return ith_fail(context, ITH_ERR_ARGUMENT, "strategy '%s' is none of auto, single, ulysses, ring and ulysses_ring",
                    name);
}

int64_t ith_strategy_sent_bytes(const ith_strategy_state *state)
{
    return (state->exchange ? ith_exchange_sent_bytes(state->exchange) : 0) +
           (state->hops ? ith_hops_sent_bytes(state->hops) : 0);
}

void ith_strategy_destroy(ith_strategy_state *state)
{
    ith_sweep_destroy(&state->sweep);
    ith_hops_destroy(&state->hops);
    ith_exchange_destroy(&state->exchange);
}
