/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys plans. Creation turns a problem and options into a setting, and allocates all memory
 * once. A step of the creation that may fail on some ranks only is followed by an agreement of all ranks. */
#include "plan.h"

#include "../base/float_state.h"
#include "agree.h"
#include "opening.h"
#include "settle.h"

#include <string.h>

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Takes the memory of a plan and of its executor from the arenas. Returns NULL while they only count bytes. */
static ith_plan *lay_out(const ith_attn_setting *setting, ith_plan_memory *memory)
{
    ith_plan *plan = ith_arena_take(&memory->host, 1, sizeof *plan);
    ith_executor unused;
    if (!plan) { /* the arenas have no memory and only count bytes */
        ith_executor_lay_out(setting, memory, &unused);
        return NULL;
    }
    memset(plan, 0, sizeof *plan);
    plan->setting = *setting;
    plan->executor.counters.struct_size = sizeof plan->executor.counters;
    ith_executor_lay_out(&plan->setting, memory, &plan->executor);
    return plan;
}

ith_status ith_plan_size(const ith_attn_setting *setting, ith_plan_sizes *sizes)
{
    ith_plan_memory memory = {0};
    lay_out(setting, &memory);
    *sizes = (ith_plan_sizes){.pinned_bytes = memory.pinned.used_bytes, .device_bytes = memory.device.used_bytes};
    const bool fits = ith_size_add(memory.host.used_bytes, memory.pinned.used_bytes, &sizes->host_bytes);
    if (!fits || memory.host.overflow || memory.pinned.overflow || memory.device.overflow)
        return ith_fail(setting->context, ITH_ERR_MEMORY,
                        "a plan for this problem takes more memory than a size can hold");
    return ITH_OK;
}

/* Allocates the memory of a plan that a device uses. On failure nothing is left. */
static ith_status allocate_for_device(const ith_attn_setting *setting, const ith_plan_sizes *sizes,
                                      ith_plan_memory *memory)
{
    const ith_device_use *use = setting->device;
    char said[ITH_DEVICE_SENTENCE] = "";
    void *on_device = NULL, *pinned = NULL;
    ith_status status = use->module->allocate(use->device, sizes->device_bytes, &on_device, said);
    if (!status)
        status = use->module->allocate_pinned(use->device, sizes->pinned_bytes, &pinned, said);
    if (status) {
        use->module->release(use->device, on_device);
        return ith_device_check(setting->context, status, said);
    }
    ith_context_count(setting->context, sizes->pinned_bytes);
    memory->device.base = on_device;
    memory->pinned.base = pinned;
    return ITH_OK;
}

/* Frees the memory of a plan that a device uses. */
static void free_for_device(ith_plan *plan)
{
    const ith_device_use *use = plan->setting.device;
    if (!use)
        return;
    ith_executor_destroy(&plan->executor);
    use->module->release(use->device, plan->on_device);
    use->module->release_pinned(use->device, plan->pinned);
    ith_context_count(plan->setting.context, -plan->sizes.pinned_bytes);
}

/* The only allocations of a plan: executing it allocates nothing. */
static ith_status allocate(const ith_attn_setting *setting, ith_plan **out)
{
    ith_plan_memory memory = {0};
    ith_plan_sizes sizes;
    ith_status status = ith_plan_size(setting, &sizes);
    if (status)
        return status;
    memory.host.base = ith_alloc(setting->context, sizes.host_bytes - sizes.pinned_bytes, 1, "a plan");
    if (!memory.host.base)
        return ITH_ERR_MEMORY;
    if (setting->device)
        status = allocate_for_device(setting, &sizes, &memory);
    if (status) {
        ith_free(setting->context, memory.host.base);
        return status;
    }
    *out = lay_out(setting, &memory);
    (*out)->sizes = sizes;
    (*out)->on_device = memory.device.base;
    (*out)->pinned = memory.pinned.base;
    return ITH_OK;
}

/* ---- Creation -------------------------------------------------------------------------------------------------- */

/* Makes the communicators of the two axes of the mesh. An axis of length 1 has none; an axis of all ranks uses comm
 * itself. */
static ith_status make_axes(ith_comm *comm, ith_plan *plan)
{
    ith_attn_setting *s = &plan->setting;
    s->comm = comm;
    plan->has_neighbours = ith_comm_blocks(comm, 0, ith_comm_size(comm)).process_ranks > 1;
    if (s->strategy == ITH_STRATEGY_SINGLE)
        return ITH_OK;
    if (s->ring == 1)
        s->ulysses_comm = comm;
    if (s->ulysses == 1)
        s->ring_comm = comm;
    if (s->ring == 1 || s->ulysses == 1)
        return ITH_OK;
    int ulysses_index = s->rank % s->ulysses, ring_index = s->rank / s->ulysses;
    plan->owns_axes = true;
    ith_status status = ith_comm_split(comm, ring_index, ulysses_index, &s->ulysses_comm);
    if (!status)
        status = ith_comm_split(comm, ulysses_index, ring_index, &s->ring_comm);
    return ith_pass_on(s->context, comm, status);
}

/* Adds a reference of the plan to the communicator and to the context, so that they live as long as the plan. */
static void hold(ith_plan *plan, ith_comm *comm)
{
    ith_context *context = ith_context_hold(plan->setting.context);
    atomic_init(&plan->holders, 1);
    plan->halt.context = context;
    plan->halt.comm = ith_comm_hold(comm);
    plan->setting.halt = &plan->halt;
}

/* Checks this rank's arguments, then makes the plan together with the other ranks. A plan that was allocated is
 * returned even on failure, for the caller to destroy. */
static ith_status create(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                         ith_comm *comm, ith_status mine, ith_plan **plan)
{
    ith_attn_options options;
    const int ranks = ith_comm_size(comm);
    const ith_group group = {ranks, ith_comm_rank(comm), ith_comm_blocks(comm, 0, ranks)};
    ith_attn_setting setting;
    int64_t number;
    if (!mine)
        mine = ith_settle_request(context, problem, given, &group, &options, &setting);
    ith_status status = ith_open_creation(context, comm, mine, &number);
    if (!status)
        status = ith_settle(&options, &group, comm, &setting);
    if (!status)
        status = ith_agree(context, comm, allocate(&setting, plan));
    if (*plan)
        hold(*plan, comm);
    if (!status)
        status = make_axes(comm, *plan);
    if (!status)
        status = ith_agree(context, comm, ith_executor_open(&(*plan)->executor));
    if (status)
        return status;
    (*plan)->number = number;
    return ITH_OK;
}

ith_status ith_plan_create(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                           ith_comm *comm, ith_plan **out)
{
    ith_plan *plan = NULL;
    if (out)
        *out = NULL;
    if (!context) {
        ith_comm_abort(comm, ITH_ERR_ARGUMENT);
        return ith_need(NULL, context, "context");
    }
    ith_status status = ith_context_check_process(context);
    if (!status)
        status = ith_comm_enter(comm, context);
    if (status)
        return status;
    /* From here on a failure is shown to the other ranks before it is returned, so that no rank waits for this one. */
    ith_status mine = ith_need(context, out, "out");
    const fenv_t before = ith_float_begin();
    status = create(context, problem, options, comm, mine, &plan);
    ith_float_end(before);
    ith_comm_exit(comm);
    if (status)
        ith_plan_destroy(&plan);
    else
        *out = plan;
    return status;
}

/* Removes one reference to the plan; the last one frees it. So a plan may be destroyed while it is executed. */
static void release(ith_plan *plan)
{
    if (atomic_fetch_sub(&plan->holders, 1) > 1)
        return;
    ith_context *context = plan->halt.context;
    ith_comm *comm = plan->halt.comm;
    if (plan->owns_axes) {
        ith_comm_destroy(&plan->setting.ulysses_comm);
        ith_comm_destroy(&plan->setting.ring_comm);
    }
    free_for_device(plan);
    ith_free(context, plan);
    ith_comm_release(comm);
    ith_context_release(context);
}

void ith_plan_destroy(ith_plan **plan)
{
    if (plan && *plan)
        release(*plan);
    if (plan)
        *plan = NULL;
}
