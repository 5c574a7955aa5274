/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy_check.h"

#include "../attention/schedule/chunk.h"
#include "settle.h"

ith_status ith_strategy_check_chunks(ith_context *context, const ith_attn_problem *problem, const ith_group *group,
                                     const ith_plan_info *c)
{
    ith_attn_setting setting;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.ulysses = c->ulysses, options.ring = c->ring, options.chunks = c->chunks;
    ith_status status = ith_attn_setting_init(context, problem, group->ranks, 0, &setting);
    if (!status)
        status = ith_settle_choices(&options, group, &setting);
    if (status || ith_chunk_count(&setting) == c->chunks)
        return status;
    return ith_fail(context, ITH_ERR_ARGUMENT, "chunks is %d, and a plan with ulysses %d has at most %d here",
                    c->chunks, c->ulysses, ith_chunk_count(&setting));
}
