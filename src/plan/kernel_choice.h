/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel a plan takes: the one that is named, or of those that every rank's machine runs the fastest, as wisdom,
 * a measurement or a rule has it. */
#ifndef ITH_PLAN_KERNEL_CHOICE_H
#define ITH_PLAN_KERNEL_CHOICE_H

#include "../attention/setting.h"

/* The kernel of that name, if it takes the setting's problem and softmax on this machine; otherwise the sentence says
 * which does. */
ith_status ith_kernel_take_named(const char *name, ith_attn_setting *setting);

/* Collective over comm. Rank 0 decides for all, with what it knows or finds out. */
ith_status ith_kernel_choose(ith_comm *comm, ith_effort effort, ith_attn_setting *setting);

/* What ith_kernel_choose with ITH_EFFORT_ESTIMATE takes on a group of machines like this one. */
ith_status ith_kernel_foresee(ith_attn_setting *setting);

#endif
