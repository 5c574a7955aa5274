/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the caller's problem and options into a setting, in which every choice is made. Every rank makes the same
 * choices. They follow from the problem, the options and the group, which are the same on every rank, and from
 * rank 0's broadcasts: the strategy and the tiles that its wisdom knows, and its choice of a kernel. */
#ifndef ITH_PLAN_SETTLE_H
#define ITH_PLAN_SETTLE_H

#include "../attention/setting.h"
#include "group.h"

/* Copies the problem and the options over the defaults, and checks them. `given`: the options; NULL: the defaults. A
 * value that is illegal for every problem is refused; the error sentence names the nearest legal value. */
ith_status ith_settle_request(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                              const ith_group *group, ith_attn_options *options, ith_attn_setting *setting);
/* Sets group->blocks: the processes and the hosts of the ranks, as the options give them. shared_memory: whether all
 * ranks of a host share memory if the options give no processes. */
ith_status ith_settle_places(ith_context *context, const ith_attn_options *options, bool shared_memory,
                             ith_group *group);
/* Makes every choice except for the kernel and its tiles, for a rank of a group that need not exist. */
ith_status ith_settle_choices(const ith_attn_options *options, const ith_group *group, ith_attn_setting *setting);
/* Makes every choice, including the kernel and its tiles. Collective over comm. comm is NULL for a single rank, or to
 * predict a plan. */
ith_status ith_settle(const ith_attn_options *options, const ith_group *group, ith_comm *comm,
                      ith_attn_setting *setting);

#endif
