/* SPDX-License-Identifier: Apache-2.0 */
/* Executes plans. */
#include "plan.h"

#include "../attention/run/device/device_call.h"
#include "../base/clock.h"
#include "../base/float_state.h"
#include "../base/sized.h"
#include "../base/team_limit.h"
#include "opening.h"

/* Marks the plan as busy for one execution. A second thread is refused, because both would use the same memory. */
static ith_status enter(ith_plan *plan)
{
    ith_context *context = plan->setting.context;
    void *pool;
    ith_status status = ith_context_check_process(context);
    if (!status && !ith_context_parallel(context, &pool))
        status = ith_team_check(context, plan->setting.threads);
    if (status)
        return status;
    if (atomic_exchange(&plan->busy, true))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "the plan is being executed by another thread: make one plan for each thread");
    status = ith_comm_enter(plan->setting.comm, context);
    if (status) {
        atomic_store(&plan->busy, false);
        return status;
    }
    atomic_fetch_add(&plan->holders, 1);
    return ITH_OK;
}

/* Marks the plan as no longer busy. If the plan was destroyed during the execution, this frees it. */
static void leave(ith_plan *plan)
{
    ith_comm_exit(plan->setting.comm);
    atomic_store(&plan->busy, false);
    ith_plan_destroy(&plan); /* removes the reference of this execution */
}

/* Sets the function that communicators call to see whether this rank has stopped: if it returns true, transfers need
 * not deliver their data. begins: an execution begins; otherwise it has ended, and transfers always deliver. */
static void set_unwanted(ith_plan *plan, bool begins)
{
    const ith_attn_setting *s = &plan->setting;
    bool (*const unwanted)(void *user) = s->device ? ith_carrier_unwanted : ith_halt_heard;
    void *const user = s->device ? (void *)&plan->executor.messages.carrier : s->halt;
    ith_comm *const comms[] = {s->comm, s->ulysses_comm, s->ring_comm};
    for (int i = 0; i < 3; i++) {
        if (!comms[i])
            continue;
        comms[i]->unwanted = begins ? unwanted : NULL;
        comms[i]->unwanted_user = user;
    }
}

/* One execution: the ranks open it together, run the schedule, and close it together. A rank whose own checks failed
 * takes part in the opening, so that the others do not wait for it. */
static ith_status execute(ith_plan *plan, const ith_attn_tensors *given)
{
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_status status = ITH_SIZED_READ(plan->setting.context, ith_attn_tensors, ITH_ATTN_TENSORS_INIT, given, &tensors);
    if (!status)
        status = ith_attn_tensors_check(&plan->setting, &tensors, &plan->extents);
    if (!status && plan->setting.device)
        status = ith_device_tensors_check(&plan->setting, &tensors);
    if (plan->setting.comm) { /* the time limit may have changed since the plan was made */
        ith_comm_set_timeout(plan->setting.ulysses_comm, plan->setting.comm->timeout_seconds);
        ith_comm_set_timeout(plan->setting.ring_comm, plan->setting.comm->timeout_seconds);
    }
    set_unwanted(plan, true);
    status = ith_open_execution(plan, &tensors, status);
    if (!status) {
        status = ith_executor_run(&plan->executor, &tensors);
        status = ith_close_execution(plan, status);
        ith_executor_close(&plan->executor);
    }
    set_unwanted(plan, false);
    return status;
}

ith_status ith_plan_execute(ith_plan *plan, const ith_attn_tensors *tensors)
{
    if (!plan)
        return ith_need(NULL, plan, "plan");
    double start = ith_clock_seconds();
    ith_status status = enter(plan);
    if (status)
        return status;
    const fenv_t before = ith_float_begin();
    status = execute(plan, tensors);
    ith_float_end(before);
    plan->executor.counters.executions += !status;
    plan->executor.counters.seconds += ith_clock_seconds() - start;
    leave(plan);
    return status;
}

void ith_plan_cancel(ith_plan *plan)
{
    if (plan)
        ith_halt_cancel(&plan->halt);
}
