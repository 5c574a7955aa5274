/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the chunks of a measured strategy (strategy_check.h). */
#include "strategy_check.h"

#include "../attention/schedule/chunk.h"
#include "settle.h"

ith_status ith_strategy_check_chunks(ith_context *context, const ith_attn_problem *problem, const ith_group *group,
                                     const ith_plan_info *choices)
{
    ith_attn_setting setting;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.ulysses = choices->ulysses, options.ring = choices->ring, options.chunks = choices->chunks;
    ith_status status = ith_attn_setting_init(context, problem, group->ranks, 0, &setting);
    if (!status)
        status = ith_settle_choices(&options, group, &setting);
    if (status || ith_chunk_count(&setting) == choices->chunks)
        return status;
    return ith_fail(context, ITH_ERR_ARGUMENT, "chunks is %d, and a plan with ulysses %d has at most %d here",
                    choices->chunks, choices->ulysses, ith_chunk_count(&setting));
}
