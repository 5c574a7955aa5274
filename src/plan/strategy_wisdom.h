/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom about strategies: the fastest mesh, direction and number of chunks for a problem on some ranks. */
#ifndef ITH_PLAN_STRATEGY_WISDOM_H
#define ITH_PLAN_STRATEGY_WISDOM_H

#include "../attention/setting.h"
#include "group.h"
#include "wisdom.h"

/* Remembers that the choices of `info` were the fastest for a setting's problem on its device, as measured by this
 * process. seconds, usual_seconds: the times of an execution with these choices, and with the choices that a plan makes
 * by its rules. */
void ith_strategy_wisdom_put(ith_wisdom *wisdom, const ith_attn_setting *setting, const ith_group *group,
                             const ith_plan_info *info, double seconds, double usual_seconds);

/* The entry for a setting's problem with this softmax; NULL if there is none. */
const ith_wisdom_entry *ith_strategy_wisdom_find(const ith_wisdom *wisdom, const ith_attn_setting *setting,
                                                 ith_softmax softmax, const ith_group *group);

/* Collective; comm may be NULL. If the options leave strategy, mesh, direction and chunks open, and rank 0's wisdom
 * knows the fastest ones, sets them in *options. They may be illegal for this problem; the caller checks. */
ith_status ith_strategy_recall(ith_comm *comm, const ith_attn_setting *setting, const ith_group *group,
                               ith_attn_options *options);

#endif
