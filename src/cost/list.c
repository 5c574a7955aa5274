/* SPDX-License-Identifier: Apache-2.0 */
/* ith_plan_list: every plan of a problem on some ranks, the fastest first, then the plans that are not legal. */
#include "../base/callback.h"
#include "../base/size.h"
#include "../base/sized.h"
#include "../plan/plan.h"
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>

/* A plan of the list, with the structs that the public candidate points to. */
typedef struct entry {
    ith_plan_candidate candidate;
    ith_attn_options options;
    ith_plan_info info;
    ith_cost cost;
    int64_t number; /* in the order in which the plans were made */
} entry;

/* The arguments of ith_plan_list, and the plans that were made so far. */
typedef struct list {
    ith_context *context;
    const ith_attn_problem *problem;
    const ith_machine *machine;
    int ranks;
    int64_t count;
    entry *entries;
} list;

/* ---- Pricing --------------------------------------------------------------------------------------------------- */

/* Whether two legal plans are the same although different options asked for them. Compares the choices that the plans
 * of a list differ in. */
static bool same_plan(const ith_plan_info *a, const ith_plan_info *b)
{
    return a->strategy == b->strategy && a->ulysses == b->ulysses && a->ring == b->ring &&
           a->direction == b->direction && a->chunks == b->chunks && a->softmax == b->softmax;
}

static bool is_listed(const list *l, const ith_plan_info *info)
{
    for (int64_t i = 0; i < l->count; i++)
        if (l->entries[i].candidate.legal && same_plan(&l->entries[i].info, info))
            return true;
    return false;
}

/* Adds a plan of the list. A plan that is refused is listed with the library's sentence; only a failure that has
 * nothing to do with the plan is returned. */
static ith_status add(list *l, const ith_attn_options *options)
{
    entry *e = &l->entries[l->count];
    *e = (entry){.options = *options, .number = l->count};
    e->candidate.struct_size = sizeof e->candidate;
    e->info = (ith_plan_info)ITH_PLAN_INFO_INIT;
    e->cost = (ith_cost)ITH_COST_INIT;
    ith_status status = ith_context_check(l->context);
    if (!status)
        status = ith_plan_cost(l->context, l->problem, options, l->machine, l->ranks, &e->info, &e->cost);
    if (status && status != ITH_ERR_ARGUMENT && status != ITH_ERR_UNSUPPORTED)
        return status;
    if (status) {
        snprintf(e->candidate.rule, sizeof e->candidate.rule, "%s", ith_context_error(l->context));
    } else {
        if (is_listed(l, &e->info))
            return ITH_OK;
        e->candidate.legal = true;
        e->options.strategy = e->info.strategy;
        e->options.ulysses = e->info.ulysses, e->options.ring = e->info.ring;
        e->options.direction = e->info.direction;
        e->options.softmax = e->info.softmax;
    }
    l->count++;
    return ITH_OK;
}

/* ---- Plans ----------------------------------------------------------------------------------------------------- */

/* Adds a plan with every number of chunks that the options leave open. */
static ith_status add_chunks(list *l, ith_attn_options options)
{
    const bool open = !options.chunks;
    const int most = open && options.ulysses != 1 && l->ranks > 1 ? 8 : 1;
    ith_status status = ITH_OK;
    for (int chunks = 1; chunks <= most && !status; chunks *= 2) {
        if (open)
            options.chunks = chunks;
        status = add(l, &options);
    }
    return status;
}

/* Adds a mesh with every direction and softmax that the options leave open. */
static ith_status add_mesh(list *l, ith_attn_options options)
{
    const bool any_direction = !options.direction && options.ring != 1 && l->ranks > 1, any_softmax = !options.softmax;
    ith_status status = ITH_OK;
    for (int i = 0; i < (any_direction ? 2 : 1) && !status; i++)
        for (int j = 0; j < (any_softmax ? 2 : 1) && !status; j++) {
            if (any_direction)
                options.direction = i ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
            if (any_softmax)
                options.softmax = j ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
            status = add_chunks(l, options);
        }
    return status;
}

/* The strategy of a mesh. */
static ith_strategy strategy_of(int ulysses, int ring)
{
    if (ulysses == 1)
        return ring == 1 ? ITH_STRATEGY_SINGLE : ITH_STRATEGY_RING;
    return ring == 1 ? ITH_STRATEGY_ULYSSES : ITH_STRATEGY_ULYSSES_RING;
}

/* Adds every mesh of the strategies that the options leave open. A ulysses axis with more ranks than there are heads
 * leaves ranks without work, so it is left out unless the options ask for the strategy ulysses. */
static ith_status add_meshes(list *l, int64_t heads, const ith_attn_options *options)
{
    ith_attn_options each = *options;
    ith_status status = ITH_OK;
    const int64_t longest = options->strategy == ITH_STRATEGY_ULYSSES ? l->ranks : heads;
    if (options->ulysses || options->ring)
        return add_mesh(l, each);
    for (int ulysses = 1; ulysses <= ith_min64(l->ranks, longest) && !status; ulysses++) {
        if (l->ranks % ulysses)
            continue;
        each.ulysses = ulysses, each.ring = l->ranks / ulysses;
        each.strategy = strategy_of(ulysses, each.ring);
        if (!options->strategy || each.strategy == options->strategy || l->ranks == 1)
            status = add_mesh(l, each);
    }
    if (!status && l->ranks > 1 && (!options->strategy || options->strategy == ITH_STRATEGY_SINGLE)) {
        each = *options;
        each.strategy = ITH_STRATEGY_SINGLE, each.chunks = each.chunks ? each.chunks : 1;
        status = add(l, &each);
    }
    return status;
}

/* An upper bound of the number of plans: 2 directions, 2 softmaxes and 4 numbers of chunks for each mesh, and single.
 */
static int64_t room_for(int ranks)
{
    int64_t divisors = 0;
    for (int64_t n = 1; n * n <= ranks; n++)
        if (ranks % n == 0)
            divisors += n * n == ranks ? 1 : 2;
    return divisors * 16 + 1;
}

/* ---- The list -------------------------------------------------------------------------------------------------- */

/* Compares two entries for qsort: legal plans first, the fastest first, then the order in which they were made. */
static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->candidate.legal != y->candidate.legal)
        return x->candidate.legal ? -1 : 1;
    if (x->candidate.legal && x->cost.seconds != y->cost.seconds)
        return x->cost.seconds < y->cost.seconds ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static ith_status deliver(list *l, ith_plan_candidate_fn take, void *user)
{
    ith_status status = ITH_OK;
    qsort(l->entries, (size_t)l->count, sizeof *l->entries, compare);
    for (int64_t i = 0; i < l->count && !status; i++) {
        entry *e = &l->entries[i];
        e->candidate.options = &e->options;
        e->candidate.info = e->candidate.legal ? &e->info : NULL;
        e->candidate.cost = e->candidate.legal ? &e->cost : NULL;
        ith_callback_begin(l->context);
        status = ith_callback_end(l->context, (int)take(user, &e->candidate), "take", "plan", i);
    }
    return status;
}

ith_status ith_plan_list(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                         const ith_machine *machine, int ranks, ith_plan_candidate_fn take, void *user)
{
    list l = {.context = context, .problem = problem, .machine = machine, .ranks = ranks};
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    int64_t heads = 0;
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = take ? ITH_OK : ith_fail(context, ITH_ERR_ARGUMENT, "take is NULL");
    if (!status && given)
        status = ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, given, &options);
    if (!status)
        status = ith_price_request(context, problem, &options, machine, ranks, &heads);
    if (status)
        return status;
    l.entries = ith_alloc(context, room_for(ranks), sizeof *l.entries, "the list of plans");
    if (!l.entries)
        return ITH_ERR_MEMORY;
    status = add_meshes(&l, heads, &options);
    if (!status)
        status = deliver(&l, take, user);
    ith_free(context, l.entries);
    return status;
}
