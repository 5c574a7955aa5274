/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a measured strategy before it becomes wisdom. */
#ifndef ITH_PLAN_STRATEGY_CHECK_H
#define ITH_PLAN_STRATEGY_CHECK_H

#include "group.h"

/* Checks that a plan of the problem with the mesh of `choices` can have its number of chunks. Plans that take choices
 * from wisdom fold the batch. */
ith_status ith_strategy_check_chunks(ith_context *context, const ith_attn_problem *problem, const ith_group *group,
                                     const ith_plan_info *c);

#endif
