/* SPDX-License-Identifier: Apache-2.0 */
/* Measured strategies become wisdom (ithaca/tune.h). */
#include "../base/sized.h"
#include "../plan/settle.h"
#include "../plan/strategy_check.h"
#include "../plan/strategy_wisdom.h"

#include <ithaca/tune.h>

#include <math.h>

/* Reads a problem for a group. On success the wisdom is locked. */
static ith_status open_problem(ith_context *context, const ith_attn_problem *problem, const ith_group *group,
                               ith_attn_setting *setting, ith_wisdom **wisdom)
{
    ith_status status = ith_attn_setting_init(context, problem, group->ranks, 0, setting);
    return status ? status : ith_wisdom_open(context, wisdom);
}

/* Makes a group of `ranks` ranks. process_ranks: ranks of each process; 0: all ranks of a host. host_ranks: ranks of
 * each host; 0: all ranks. */
static ith_status make_group(ith_context *context, int ranks, int process_ranks, int host_ranks, ith_group *group)
{
    ith_attn_options places = ITH_ATTN_OPTIONS_INIT;
    if (ranks < 1 || process_ranks < 0 || host_ranks < 0)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "ranks is %d, process_ranks %d and host_ranks %d: ranks must be at least 1, the others 0 or "
                        "more",
                        ranks, process_ranks, host_ranks);
    places.process_ranks = process_ranks, places.host_ranks = host_ranks;
    *group = (ith_group){.ranks = ranks};
    return ith_settle_places(context, &places, true, group);
}

/* Checks that an executed plan can have these choices and times. */
static ith_status check_measured(ith_context *context, const ith_plan_info *c, double seconds, double usual_seconds)
{
    if (c->ulysses < 1 || c->ring < 1 || (int64_t)c->ulysses * c->ring != c->ranks)
        return ith_fail(context, ITH_ERR_ARGUMENT, "ulysses %d times ring %d must be the number of ranks, which is %d",
                        c->ulysses, c->ring, c->ranks);
    if (c->chunks < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "chunks is %d, and must be at least 1", c->chunks);
    if ((c->direction != ITH_DIRECTION_UNI && c->direction != ITH_DIRECTION_BIDIR) ||
        (c->softmax != ITH_SOFTMAX_ONLINE && c->softmax != ITH_SOFTMAX_FIXED_M))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "direction is %d and softmax %d: a plan has uni or bidir, and online or fixed_m", c->direction,
                        c->softmax);
    if (!(seconds > 0) || !(usual_seconds > 0) || !isfinite(seconds) || !isfinite(usual_seconds))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "seconds is %g and usual_seconds %g: both must be finite and above 0", seconds, usual_seconds);
    return ITH_OK;
}

ith_status ith_wisdom_put_strategy(ith_context *context, const ith_attn_problem *problem, const ith_plan_info *info,
                                   int process_ranks, int host_ranks, double seconds, double usual_seconds)
{
    ith_attn_setting setting;
    ith_wisdom *wisdom;
    ith_plan_info choices = ITH_PLAN_INFO_INIT;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ITH_SIZED_READ(context, ith_plan_info, ITH_PLAN_INFO_INIT, info, &choices);
    if (status)
        return status;
    ith_group group;
    status = make_group(context, choices.ranks, process_ranks, host_ranks, &group);
    if (!status)
        status = check_measured(context, &choices, seconds, usual_seconds);
    if (!status)
        status = ith_strategy_check_chunks(context, problem, &group, &choices);
    if (!status)
        status = open_problem(context, problem, &group, &setting, &wisdom);
    if (status)
        return status;
    if (setting.problem.replicated_kv)
        status =
            ith_fail(context, ITH_ERR_ARGUMENT,
                     "replicated_kv is set: with replicated keys nothing is exchanged, and no strategy is measured");
    else
        ith_strategy_wisdom_put(wisdom, &setting, &group, &choices, seconds, usual_seconds);
    ith_wisdom_close(context);
    return status;
}

ith_status ith_wisdom_has_strategy(ith_context *context, const ith_attn_problem *problem, ith_softmax softmax,
                                   int ranks, int process_ranks, int host_ranks, int *known)
{
    ith_attn_setting setting;
    ith_wisdom *wisdom;
    ith_group group;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, known, "known");
    if (!status && (softmax < ITH_SOFTMAX_AUTO || softmax > ITH_SOFTMAX_FIXED_M))
        status =
            ith_fail(context, ITH_ERR_ARGUMENT, "softmax is %d, and must be auto, online or fixed_m", (int)softmax);
    if (!status)
        status = make_group(context, ranks, process_ranks, host_ranks, &group);
    if (!status)
        status = open_problem(context, problem, &group, &setting, &wisdom);
    if (status)
        return status;
    *known = !setting.problem.replicated_kv &&
             ith_strategy_wisdom_find(wisdom, &setting, softmax ? softmax : ITH_SOFTMAX_ONLINE, &group) != NULL;
    ith_wisdom_close(context);
    return ITH_OK;
}
