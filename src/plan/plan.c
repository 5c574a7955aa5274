/* Plans: a problem and options become a setting and a strategy's state, once; then they are executed. Every step that
 * one rank may fail at and others not is followed by an agreement. */
#include "plan.h"

#include "../base/clock.h"
#include "../base/sized.h"
#include "agree.h"
#include "kernel_choice.h"
#include "options.h"
#include "settle.h"
#include "tiles.h"

#include <string.h>

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static ith_plan *lay_out(const ith_attn_setting *setting, ith_arena *arena, ith_strategy_state *state)
{
    ith_plan *plan = ith_arena_take(arena, 1, sizeof *plan);
    if (!plan) { /* counting */
        ith_strategy_find(setting->strategy)->lay_out(setting, arena, state);
        return NULL;
    }
    memset(plan, 0, sizeof *plan);
    plan->setting = *setting;
    plan->ops = ith_strategy_find(setting->strategy);
    plan->state.setting = &plan->setting;
    plan->state.counters.struct_size = sizeof plan->state.counters;
    plan->ops->lay_out(&plan->setting, arena, &plan->state);
    return plan;
}

ith_status ith_plan_size(const ith_attn_setting *setting, int64_t *bytes)
{
    ith_strategy_state state = {.setting = setting};
    ith_arena arena = {0};
    lay_out(setting, &arena, &state);
    *bytes = arena.used_bytes;
    if (arena.overflow)
        return ith_fail(setting->context, ITH_ERR_MEMORY,
                        "a plan for this problem takes more memory than a size can hold");
    return ITH_OK;
}

static ith_status allocate(const ith_attn_setting *setting, ith_plan **out)
{
    ith_arena arena = {0};
    int64_t bytes = 0;
    ith_status status = ith_plan_size(setting, &bytes);
    if (status)
        return status;
    arena.base = ith_alloc(setting->context, bytes, 1, "a plan");
    if (!arena.base)
        return ITH_ERR_MEMORY;
    *out = lay_out(setting, &arena, NULL);
    (*out)->memory_bytes = bytes;
    return ITH_OK;
}

/* ---- Creation -------------------------------------------------------------------------------------------------- */

/* The groups of the mesh's two axes. */
static ith_status make_axes(ith_comm *comm, ith_plan *plan)
{
    ith_attn_setting *s = &plan->setting;
    s->comm = comm;
    if (s->strategy == ITH_STRATEGY_SINGLE)
        return ITH_OK;
    if (s->ring == 1)
        s->ulysses_comm = comm;
    if (s->ulysses == 1)
        s->ring_comm = comm;
    if (s->ring == 1 || s->ulysses == 1)
        return ITH_OK;
    plan->owns_axes = true;
    ith_status status = ith_comm_split(comm, s->ring_index, s->ulysses_index, &s->ulysses_comm);
    if (!status)
        status = ith_comm_split(comm, s->ulysses_index, s->ring_index, &s->ring_comm);
    return ith_pass_on(s->context, comm, status);
}

/* Every choice, once the ranks know that each has understood its own arguments. */
static ith_status settle(const ith_attn_options *options, const ith_group *group, ith_comm *comm, ith_attn_setting *s)
{
    const ith_attn_tiles tiles = ith_tiles_asked(options);
    ith_status status = ith_agree_on_request(comm, s, options);
    if (!status)
        status = ith_agree(s->context, comm, ith_settle_choices(options, group, s));
    if (!status && !s->kernel)
        status = ith_kernel_choose(comm, s);
    return status ? status : ith_agree(s->context, comm, ith_tiles_resolve(&tiles, s));
}

ith_status ith_plan_create(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                           ith_comm *comm, ith_plan **out)
{
    ith_attn_options options;
    if (out)
        *out = NULL;
    if (!context) {
        ith_comm_abort(comm, ITH_ERR_ARGUMENT);
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "the context is NULL");
    }
    const ith_group group = {ith_comm_size(comm), ith_comm_rank(comm), comm && comm->ops->share};
    ith_attn_setting setting;
    ith_plan *plan = NULL;
    ith_status status = out ? ith_settle_request(context, problem, given, &group, &options, &setting)
                            : ith_fail(context, ITH_ERR_ARGUMENT, "out is NULL");
    status = ith_agree(context, comm, status);
    if (!status)
        status = settle(&options, &group, comm, &setting);
    if (!status)
        status = ith_agree(context, comm, allocate(&setting, &plan));
    if (!status)
        status = make_axes(comm, plan);
    if (status) {
        ith_plan_destroy(&plan);
        return status;
    }
    plan->ops->init(&plan->state);
    *out = plan;
    return ITH_OK;
}

void ith_plan_destroy(ith_plan **plan)
{
    if (!plan || !*plan)
        return;
    ith_plan *self = *plan;
    if (self->owns_axes) {
        ith_comm_destroy(&self->setting.ulysses_comm);
        ith_comm_destroy(&self->setting.ring_comm);
    }
    ith_free(self->setting.context, self);
    *plan = NULL;
}

/* ---- Execution ------------------------------------------------------------------------------------------------- */

ith_status ith_plan_execute(ith_plan *plan, const ith_attn_tensors *given)
{
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    if (!plan)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "the plan is NULL");
    ith_context *context = plan->setting.context;
    ith_comm *comm = plan->setting.comm;
    double start = ith_clock_seconds();
    ith_status status = ITH_SIZED_READ(context, ith_attn_tensors, ITH_ATTN_TENSORS_INIT, given, &tensors);
    if (!status)
        status = ith_attn_tensors_check(&plan->setting, &tensors);
    if (status && ith_comm_size(comm) > 1) { /* the others are on their way and would wait for this rank */
        if (comm->context != context)
            ith_fail(comm->context, status, "%s", ith_context_error(context));
        ith_comm_abort(comm, status);
    }
    if (status)
        return status;
    status = ith_pass_on(context, comm, plan->ops->execute(&plan->state, &tensors));
    plan->state.counters.executions += !status;
    plan->state.counters.seconds += ith_clock_seconds() - start;
    return status;
}
