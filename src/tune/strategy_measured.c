/* SPDX-License-Identifier: Apache-2.0 */
/* Measured strategies become wisdom (ithaca/tune.h). */
#include "../base/sized.h"
#include "../plan/strategy_wisdom.h"

#include <ithaca/tune.h>

/* Reads a problem for a group, and locks the wisdom, which is locked on success. */
static ith_status open_problem(ith_context *context, const ith_attn_problem *problem, const ith_group *group,
                               ith_attn_setting *setting, ith_wisdom **wisdom)
{
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_attn_setting_init(context, problem, group->ranks, 0, setting);
    return status ? status : ith_wisdom_open(context, wisdom);
}

static ith_group group_of(int ranks, int process_ranks, int host_ranks)
{
    return (ith_group){.ranks = ranks,
                       .blocks = {process_ranks ? process_ranks : ranks, host_ranks ? host_ranks : ranks}};
}

ith_status ith_wisdom_put_strategy(ith_context *context, const ith_attn_problem *problem, const ith_plan_info *info,
                                   int process_ranks, int host_ranks, double seconds, double usual_seconds)
{
    ith_attn_setting setting;
    ith_wisdom *wisdom;
    ith_plan_info choices = ITH_PLAN_INFO_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_plan_info, ITH_PLAN_INFO_INIT, info, &choices);
    if (status)
        return status;
    const ith_group group = group_of(choices.ranks, process_ranks, host_ranks);
    status = open_problem(context, problem, &group, &setting, &wisdom);
    if (status)
        return status;
    ith_strategy_wisdom_put(wisdom, &setting.problem, &group, &choices, seconds, usual_seconds);
    ith_wisdom_close(context);
    return ITH_OK;
}

ith_status ith_wisdom_has_strategy(ith_context *context, const ith_attn_problem *problem, ith_softmax softmax,
                                   int ranks, int process_ranks, int host_ranks, int *known)
{
    ith_attn_setting setting;
    ith_wisdom *wisdom;
    const ith_group group = group_of(ranks, process_ranks, host_ranks);
    ith_status status = ith_need(context, known, "known");
    if (!status)
        status = open_problem(context, problem, &group, &setting, &wisdom);
    if (status)
        return status;
    *known = ith_strategy_wisdom_find(wisdom, &setting.problem, softmax ? softmax : ITH_SOFTMAX_ONLINE, &group) != NULL;
    ith_wisdom_close(context);
    return ITH_OK;
}
