/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a measured strategy before it becomes wisdom. */
#ifndef ITH_PLAN_STRATEGY_CHECK_H
#define ITH_PLAN_STRATEGY_CHECK_H

#include "group.h"

/* Checks that a plan of the problem with the mesh of `choices` can have the number of chunks of `choices`. The batch is
 * folded, as in every plan that takes its strategy from wisdom. */
ith_status ith_strategy_check_chunks(ith_context *context, const ith_attn_problem *problem, const ith_group *group,
                                     const ith_plan_info *choices);

#endif
