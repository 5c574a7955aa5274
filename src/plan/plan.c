/* Plans: a problem and options become a setting and a strategy's state, once; then they are executed. Every step that
 * one rank may fail at and others not is followed by an agreement. */
#include "../attention/strategy.h"
#include "agree.h"
#include "choose.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

struct ith_plan {
    ith_comm *comm;
    ith_attn_setting setting;
    const ith_strategy_ops *ops; /* NULL until there is a state */
    ith_strategy_state state;
    bool owns_axes;
};

/* A rank's context and its communicator's may be two: what is passed between ranks lies in the second. */
static ith_status agree(ith_context *context, ith_comm *comm, ith_status status)
{
    if (!comm)
        return status;
    if (status && comm->context != context)
        ith_fail(comm->context, status, "%s", ith_context_error(context));
    status = ith_comm_agree(comm, status);
    if (status && comm->context != context)
        ith_fail(context, status, "%s", ith_context_error(comm->context));
    return status;
}

/* What this rank can find out alone. */
static ith_status prepare(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                          ith_comm *comm, ith_plan *plan)
{
    if (options->struct_size != sizeof *options)
        return ith_fail(context, ITH_ERR_ARGUMENT, "options.struct_size is %zu, not %zu: use ITH_ATTN_OPTIONS_INIT",
                        options->struct_size, sizeof *options);
    ith_attn_setting *s = &plan->setting;
    plan->comm = comm;
    ith_status status = ith_attn_setting_init(context, problem, ith_comm_size(comm), ith_comm_rank(comm), s);
    if (status)
        return status;
    s->threads = omp_get_max_threads();
    s->kernel = ith_attn_kernel_choose(context, options->kernel, s->problem.dtype, s->problem.head_dim);
    return s->kernel ? ITH_OK : ITH_ERR_ARGUMENT;
}

/* The groups of the mesh's two axes. */
static ith_status make_axes(ith_plan *plan)
{
    ith_attn_setting *s = &plan->setting;
    if (s->strategy == ITH_STRATEGY_SINGLE)
        return ITH_OK;
    if (s->ring == 1)
        s->ulysses_comm = plan->comm;
    if (s->ulysses == 1)
        s->ring_comm = plan->comm;
    if (s->ring == 1 || s->ulysses == 1)
        return ITH_OK;
    plan->owns_axes = true;
    ith_status status = ith_comm_split(plan->comm, s->ring_index, s->ulysses_index, &s->ulysses_comm);
    return status ? status : ith_comm_split(plan->comm, s->ulysses_index, s->ring_index, &s->ring_comm);
}

/* Everything after the ranks know that each has understood its own arguments. */
static ith_status build(ith_context *context, const ith_attn_options *options, ith_plan *plan)
{
    ith_attn_setting *s = &plan->setting;
    ith_comm *comm = plan->comm;
    ith_status status = ith_agree_on_problem(comm, s, options);
    if (!status)
        status = agree(context, comm, ith_choose_strategy(options, ith_comm_size(comm), ith_comm_rank(comm), s));
    if (!status)
        status = make_axes(plan);
    if (status) {
        if (comm && comm->context != context && ith_context_error(comm->context)[0])
            ith_fail(context, status, "%s", ith_context_error(comm->context));
        return status;
    }
    plan->ops = ith_strategy_find(s->strategy);
    return agree(context, comm, plan->ops->create(s, &plan->state));
}

ith_status ith_plan_create(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                           ith_comm *comm, ith_plan **out)
{
    const ith_attn_options defaults = ITH_ATTN_OPTIONS_INIT;
    if (out)
        *out = NULL;
    if (!context) {
        ith_comm_abort(comm, ITH_ERR_ARGUMENT);
        return ITH_ERR_ARGUMENT;
    }
    ith_status status = ITH_ERR_MEMORY;
    ith_plan *plan = ith_alloc_zero(context, 1, sizeof *plan, "a plan");
    if (plan)
        status = prepare(context, problem, options ? options : &defaults, comm, plan);
    if (!out)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "out is NULL");
    status = agree(context, comm, status);
    if (!status)
        status = build(context, options ? options : &defaults, plan);
    if (status) {
        if (plan) {
            plan->setting.context = context;
            ith_plan_destroy(&plan);
        }
        return status;
    }
    *out = plan;
    return ITH_OK;
}

ith_status ith_plan_execute(ith_plan *plan, const ith_attn_tensors *tensors)
{
    if (!plan)
        return ITH_ERR_ARGUMENT;
    ith_context *context = plan->setting.context;
    ith_comm *comm = plan->comm;
    ith_status status = ith_attn_tensors_check(&plan->setting, tensors);
    if (status && ith_comm_size(comm) > 1) { /* the others are on their way and would wait for this rank */
        if (comm->context != context)
            ith_fail(comm->context, status, "%s", ith_context_error(context));
        ith_comm_abort(comm, status);
    }
    if (status)
        return status;
    status = plan->ops->execute(&plan->state, tensors);
    if (status && comm && comm->context != context)
        ith_fail(context, status, "%s", ith_context_error(comm->context));
    return status;
}

const char *ith_plan_print(const ith_plan *plan, char *text, size_t text_bytes)
{
    if (!text || !text_bytes)
        return text;
    if (!plan) {
        text[0] = '\0';
        return text;
    }
    const ith_attn_setting *s = &plan->setting;
    int ranks = ith_comm_size(plan->comm);
    snprintf(text, text_bytes,
             "%s over %d rank%s%s, ulysses %d x ring %d\n"
             "kernel %s, blocks of %lld queries and %lld keys, %d thread%s\n"
             "rank %d sends %.3f MiB in one execution",
             plan->ops->name, ranks, ranks == 1 ? "" : "s", s->problem.replicated_kv ? " (keys replicated)" : "",
             s->ulysses, s->ring, s->kernel->name, (long long)s->kernel->q_block, (long long)s->kernel->kv_block,
             s->threads, s->threads == 1 ? "" : "s", ith_comm_rank(plan->comm),
             (double)plan->ops->sent_bytes(&plan->state) / 1048576.0);
    return text;
}

void ith_plan_destroy(ith_plan **plan)
{
    if (!plan || !*plan)
        return;
    ith_plan *self = *plan;
    if (self->ops)
        self->ops->destroy(&self->state);
    if (self->owns_axes) {
        ith_comm_destroy(&self->setting.ulysses_comm);
        ith_comm_destroy(&self->setting.ring_comm);
    }
    ith_free(self->setting.context, self);
    *plan = NULL;
}
