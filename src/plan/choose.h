/* SPDX-License-Identifier: Apache-2.0 */
/* The choices that options leave open: strategy and mesh. The same on every rank, since the problem and the options
 * are. */
#ifndef ITH_PLAN_CHOOSE_H
#define ITH_PLAN_CHOOSE_H

#include "../attention/schedule/schedule.h"

/* Fills in the setting's strategy and mesh, or names the rule that the options break and the nearest legal choice. */
ith_status ith_choose_strategy(const ith_attn_options *options, int ranks, int rank, ith_attn_setting *setting);

#endif
