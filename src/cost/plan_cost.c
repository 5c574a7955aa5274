/* SPDX-License-Identifier: Apache-2.0 */
/* ith_plan_cost: the plan that would be made on a machine, and its cost. */
#include "../base/sized.h"
#include "../plan/plan.h"
#include "walk.h"

ith_status ith_plan_cost(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                         const ith_machine *machine, int ranks, ith_plan_info *info, ith_cost *cost)
{
    ith_machine_view view;
    ith_price price;
    int64_t bytes = 0;
    if (!context)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "the context is NULL");
    ith_status status = info ? ITH_SIZED_CHECK(context, ith_plan_info, ITH_PLAN_INFO_INIT, info) : ITH_OK;
    if (!status && cost)
        status = ITH_SIZED_CHECK(context, ith_cost, ITH_COST_INIT, cost);
    if (!status)
        status = ith_price_plan(context, problem, options, machine, ranks, &view, &price);
    if (!status)
        status = ith_plan_size(&price.setting, &bytes);
    if (status)
        return status;
    ith_cost predicted = ith_model_cost(&price, false);
    predicted.memory_bytes = bytes;
    if (cost)
        status = ITH_SIZED_FILL(context, ith_cost, ITH_COST_INIT, cost, &predicted);
    if (!info || status)
        return status;
    const ith_plan_info foreseen = ith_price_info(&price, predicted.sent_bytes, bytes);
    return ITH_SIZED_FILL(context, ith_plan_info, ITH_PLAN_INFO_INIT, info, &foreseen);
}
