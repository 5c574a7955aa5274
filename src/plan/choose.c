/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy and mesh. One rank, or replicated keys: single. Otherwise as many ranks on the ulysses axis as there are
 * heads for, since ulysses sends least and has the bits of one rank, and the rest on the ring; unless heads come out so
 * uneven that ranks would wait for others (40 heads on 16 ranks: 8 x 2 instead of 16). */
#include "choose.h"

#include "../base/size.h"

/* The largest divisor of n that is at most `most`; 1 if most is less. */
static int divisor_below(int n, int64_t most)
{
    int64_t best = ith_max64(ith_min64(most, n), 1);
    while (n % best)
        best--;
    return (int)best;
}

/* A rank that has most may have so much more than the average, in percent, before a smaller axis is preferred. */
#define UNEVEN_PERCENT 15

/* The longest ulysses axis that divides the ranks and shares the problems out evenly enough. */
static int balanced_axis(int ranks, int64_t problems)
{
    for (int64_t axis = divisor_below(ranks, problems); axis > 1; axis = divisor_below(ranks, axis - 1))
        if ((double)ith_div_up(problems, axis) * (double)axis * 100 <= (double)problems * (100 + UNEVEN_PERCENT))
            return (int)axis;
    return 1;
}

/* One axis is given: the other follows. */
static ith_status complete_mesh(ith_context *context, const char *name, int given, int ranks, int *other)
{
    if (ranks % given)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s is %d, and must divide the number of ranks, which is %d; the nearest that does is %d", name,
                        given, ranks, divisor_below(ranks, given));
    *other = ranks / given;
    return ITH_OK;
}

/* A mesh for a strategy when neither axis is given. problems: batch * heads. */
static void default_mesh(ith_strategy strategy, int ranks, int64_t problems, int *ulysses)
{
    if (strategy == ITH_STRATEGY_RING) {
        *ulysses = 1;
    } else if (strategy == ITH_STRATEGY_ULYSSES_RING) {
        int64_t square = 1; /* nearly square, ulysses the longer side */
        while (square * square < ranks || ranks % square)
            square++;
        *ulysses = divisor_below(ranks, ith_min64(square, problems));
    } else if (strategy == ITH_STRATEGY_AUTO) {
        *ulysses = balanced_axis(ranks, problems);
    } else {
        *ulysses = ranks;
    }
}

static ith_status choose_mesh(const ith_attn_options *options, int ranks, ith_attn_setting *s)
{
    int ulysses = options->ulysses, ring = options->ring;
    ith_status status = ITH_OK;
    if (!ulysses && !ring)
        default_mesh(options->strategy, ranks, s->problem.batch * s->problem.heads, &ulysses);
    if (!ring)
        status = complete_mesh(s->context, "ulysses", ulysses, ranks, &ring);
    else if (!ulysses)
        status = complete_mesh(s->context, "ring", ring, ranks, &ulysses);
    if (status)
        return status;
    if ((int64_t)ulysses * ring != ranks) {
        int nearest = divisor_below(ranks, ulysses);
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "ulysses %d times ring %d must be the number of ranks, which is %d; the nearest mesh is "
                        "ulysses %d x ring %d",
                        ulysses, ring, ranks, nearest, ranks / nearest);
    }
    s->ulysses = ulysses;
    s->ring = ring;
    return ITH_OK;
}

ith_status ith_choose_strategy(const ith_attn_options *options, int ranks, int rank, ith_attn_setting *s)
{
    ith_status status = choose_mesh(options, ranks, s);
    if (status)
        return status;
    s->strategy = options->strategy;
    if (s->strategy == ITH_STRATEGY_AUTO)
        s->strategy = s->ring == 1      ? ITH_STRATEGY_ULYSSES
                      : s->ulysses == 1 ? ITH_STRATEGY_RING
                                        : ITH_STRATEGY_ULYSSES_RING;
    status = ith_strategy_find(s->strategy)->applicable(s);
    if (status)
        return status;
    if (ranks == 1 || s->problem.replicated_kv)
        s->strategy = ITH_STRATEGY_SINGLE; /* what all of them come to */
    else if (s->strategy == ITH_STRATEGY_ULYSSES_RING && s->ulysses == 1)
        s->strategy = ITH_STRATEGY_RING;
    else if (s->strategy == ITH_STRATEGY_ULYSSES_RING && s->ring == 1)
        s->strategy = ITH_STRATEGY_ULYSSES;
    s->rank = rank;
    return ITH_OK;
}
