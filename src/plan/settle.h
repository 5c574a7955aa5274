/* SPDX-License-Identifier: Apache-2.0 */
/* From what is asked for to a setting in which every choice but the kernel and its tiles is made. A function of the
 * problem, the options and the group: every rank comes to the same. */
#ifndef ITH_PLAN_SETTLE_H
#define ITH_PLAN_SETTLE_H

#include "../attention/setting.h"

/* The group of ranks that a plan is for. */
typedef struct ith_group {
    int ranks, rank;
    bool shared_memory; /* ranks can look at one another's tensors */
} ith_group;

/* Copies the problem and the options, which may be NULL, and checks them by themselves. */
ith_status ith_settle_request(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                              const ith_group *group, ith_attn_options *options, ith_attn_setting *setting);
/* Strategy, mesh, softmax and all that concerns the exchange; a kernel that is named. */
ith_status ith_settle_choices(const ith_attn_options *options, const ith_group *group, ith_attn_setting *setting);

#endif
