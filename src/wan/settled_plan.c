#include "settled_plan.h"

/* NULL where there is none; to make the plan then says why, on all ranks. */
static const char *foreseen_kernel(ith_context *context, const ith_attn_problem *problem,
                                   const ith_attn_options *options)
{
    /* As one rank would meet it: mesh and strides may be those of several. */
    ith_attn_options alone = ITH_ATTN_OPTIONS_INIT;
    ith_attn_problem whole = *problem;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    alone.softmax = options->softmax;
    whole.q_row_stride = whole.k_row_stride = whole.v_row_stride = whole.o_row_stride = 0;
    whole.q_batch_stride = whole.k_batch_stride = whole.v_batch_stride = whole.o_batch_stride = 0;
    return ith_plan_predict(context, &whole, &alone, 1, 0, true, &info) ? NULL : info.kernel;
}

ith_status ith_settled_plan_create(ith_context *context, const ith_attn_problem *problem,
                                   const ith_attn_options *options, ith_comm *comm, ith_plan **out)
{
    ith_attn_options settled = ITH_ATTN_OPTIONS_INIT;
    if (options)
        settled = *options;
    if (!settled.kernel)
        settled.kernel = foreseen_kernel(context, problem, &settled);
    return ith_plan_create(context, problem, &settled, comm, out);
}
