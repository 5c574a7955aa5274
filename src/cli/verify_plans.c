/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of a problem: all values of all options that have a meaning together, as far as the library takes them.
 * Chunks that are lowered to the same number are one plan. */
#include "verify.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

static bool same_plan(const ith_plan_info *a, const ith_plan_info *b)
{
    return a->strategy == b->strategy && a->ranks == b->ranks && a->ulysses == b->ulysses && a->ring == b->ring &&
           a->direction == b->direction && a->chunks == b->chunks && a->folded == b->folded &&
           a->softmax == b->softmax && a->smoothed == b->smoothed && a->exchange == b->exchange &&
           !strcmp(a->kernel, b->kernel);
}

/* Adds a plan unless it is illegal or there already; the library's sentence about the last illegal one stays in the
 * context. */
static int add(ith_verify *v, const ith_attn_options *options, int ranks)
{
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    if (ith_plan_predict(v->context, &v->first.problem, options, ranks, 0, true, &info))
        return ITH_EXIT_DONE;
    for (int i = 0; i < v->count; i++)
        if (same_plan(&v->plans[i].info, &info))
            return ITH_EXIT_DONE;
    if (v->count == v->room) {
        int room = v->room ? 2 * v->room : 256;
        ith_verify_plan *plans = realloc(v->plans, (size_t)room * sizeof *plans);
        if (!plans)
            return ith_cli_error("there is no memory for %d plans", room);
        v->plans = plans;
        v->room = room;
    }
    v->plans[v->count++] = (ith_verify_plan){.options = *options, .info = info};
    return ITH_EXIT_DONE;
}

/* Every direction, number of chunks, fold and exchange of a strategy on one mesh. */
static int add_mesh(ith_verify *v, ith_attn_options options)
{
    bool exchanges = options.ulysses > 1, travels = options.ring > 1;
    int code = ITH_EXIT_DONE;
    for (int n = 0; !code && n < 2 * 3 * 2 * 2; n++) {
        bool bidir = n % 2, one_by_one = n / 6 % 2, copy = n / 12;
        int chunks = n / 2 % 3 + 1;
        if ((bidir && !travels) || (chunks > 1 && !exchanges) ||
            (one_by_one && (!exchanges || v->first.problem.batch == 1)))
            continue;
        options.direction = bidir ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
        options.chunks = chunks;
        options.fold = one_by_one ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
        options.exchange = copy ? ITH_EXCHANGE_COPY : ITH_EXCHANGE_IN_PLACE;
        code = add(v, &options, v->ranks);
    }
    return code;
}

/* Every mesh; ulysses_ring goes with all of them. */
static int add_meshes(ith_verify *v, ith_attn_options options)
{
    int code = ITH_EXIT_DONE;
    for (int ulysses = v->ranks; !code && v->ranks > 1 && ulysses >= 1; ulysses--) {
        if (v->ranks % ulysses)
            continue;
        options.ulysses = ulysses, options.ring = v->ranks / ulysses;
        options.strategy = ulysses > 1 ? ITH_STRATEGY_ULYSSES : ITH_STRATEGY_RING;
        if (ulysses == 1 || ulysses == v->ranks)
            code = add_mesh(v, options);
        options.strategy = ITH_STRATEGY_ULYSSES_RING;
        if (!code)
            code = add_mesh(v, options);
    }
    return code;
}

static int add_kernel(ith_verify *v, const char *kernel)
{
    int code = ITH_EXIT_DONE;
    for (int n = 0; !code && n < 3; n++) {
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        options.kernel = kernel;
        options.softmax = n ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        options.smooth = n == 2 ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
        options.strategy = ITH_STRATEGY_SINGLE;
        code = add(v, &options, 1);
        if (!code)
            code = add_meshes(v, options);
    }
    return code;
}

int ith_verify_list(ith_verify *v)
{
    const char *name;
    bool usable, known = !v->kernel;
    int code = ITH_EXIT_DONE;
    for (int i = 0; !code && (name = ith_kernel_list(v->context, i, &usable)); i++)
        if (!v->kernel || !strcmp(name, v->kernel)) {
            known = true;
            code = usable ? add_kernel(v, name) : code;
        }
    if (!code && !known)
        return ith_cli_error("there is no kernel '%s'; 'ithaca info' lists those that there are", v->kernel);
    if (!code && !v->count)
        return ith_cli_error("no plan is legal: %s", ith_context_error(v->context));
    return code;
}
