/* SPDX-License-Identifier: Apache-2.0 */
/* ith_plan_cost and ith_plan_simulate: the plan that would be made on a machine, and its cost. */
#include "../base/observer.h"
#include "../base/sized.h"
#include "../plan/plan.h"
#include "simulate.h"
#include "walk.h"

/* Reads a simulation and checks it. */
static ith_status read_simulation(ith_context *context, const ith_simulation *given, int ranks, ith_simulation *s)
{
    *s = (ith_simulation)ITH_SIMULATION_INIT;
    ith_status status = given ? ITH_SIZED_READ(context, ith_simulation, ITH_SIMULATION_INIT, given, s) : ITH_OK;
    if (status)
        return status;
    if (!(s->jitter >= 0 && s->jitter <= 1))
        return ith_fail(context, ITH_ERR_ARGUMENT, "jitter is %g, and must be from 0 to 1", s->jitter);
    if (s->slow_rank < -1 || (s->slow_rank >= 0 && s->slow_rank >= ranks))
        return ith_fail(context, ITH_ERR_ARGUMENT, "slow_rank is %lld, and must be -1 (none) or a rank, 0 to %d",
                        (long long)s->slow_rank, ranks - 1);
    if (!(s->slow_factor >= 1 && s->slow_factor <= 1e6))
        return ith_fail(context, ITH_ERR_ARGUMENT, "slow_factor is %g, and must be from 1 to 1e6", s->slow_factor);
    if (s->executions < 0 || s->executions > 1000000)
        return ith_fail(context, ITH_ERR_ARGUMENT, "executions is %lld, and must be from 0 to 1000000",
                        (long long)s->executions);
    if (!(s->work_seconds >= 0 && s->work_seconds <= 1e9))
        return ith_fail(context, ITH_ERR_ARGUMENT, "work_seconds is %g, and must be from 0 to 1e9", s->work_seconds);
    return ITH_OK;
}

/* Prices a plan. simulation: on all ranks; NULL: by the model. */
static ith_status find_cost(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                            const ith_machine *machine, int ranks, const ith_simulation *simulation,
                            ith_plan_info *info, ith_cost *cost)
{
    ith_machine_view view;
    ith_price price;
    ith_cost predicted;
    ith_plan_sizes sizes;
    ith_status status = info ? ITH_SIZED_CHECK(context, ith_plan_info, ITH_PLAN_INFO_INIT, info) : ITH_OK;
    if (!status && cost)
        status = ITH_SIZED_CHECK(context, ith_cost, ITH_COST_INIT, cost);
    if (!status)
        status = ith_price_plan(context, problem, options, machine, ranks, &view, &price);
    if (!status)
        status = ith_plan_size(&price.setting, &sizes);
    if (!status)
        status = simulation ? ith_simulator_run(context, &price, simulation, &predicted)
                            : ith_model_cost(context, &price, false, &predicted);
    if (status)
        return status;
    predicted.memory_bytes = sizes.host_bytes;
    if (cost)
        status = ITH_SIZED_FILL(context, ith_cost, ITH_COST_INIT, cost, &predicted);
    if (!info || status)
        return status;
    const ith_plan_info foreseen = ith_price_info(&price, predicted.sent_bytes, &sizes);
    return ITH_SIZED_FILL(context, ith_plan_info, ITH_PLAN_INFO_INIT, info, &foreseen);
}

ith_status ith_plan_cost(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                         const ith_machine *machine, int ranks, ith_plan_info *info, ith_cost *cost)
{
    if (!context)
        return ith_need(NULL, context, "context");
    return find_cost(context, problem, options, machine, ranks, NULL, info, cost);
}

ith_status ith_plan_simulate(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                             const ith_machine *machine, int ranks, const ith_simulation *given, ith_plan_info *info,
                             ith_cost *cost)
{
    ith_simulation simulation;
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = read_simulation(context, given, ranks, &simulation);
    if (status)
        return status;
    ith_observer *before = ith_context_observer(context);
    ith_observer observer = {.should_stop = simulation.should_stop, .user = simulation.user};
    ith_observer_open(&observer);
    if (simulation.should_stop)
        ith_context_set_observer(context, &observer);
    status = find_cost(context, problem, options, machine, ranks, &simulation, info, cost);
    ith_context_set_observer(context, before);
    ith_observer_close(&observer);
    return status;
}
