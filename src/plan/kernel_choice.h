/* Which kernel a plan takes: the one that is named, or the fastest of those that every rank's machine runs. */
#ifndef ITH_PLAN_KERNEL_CHOICE_H
#define ITH_PLAN_KERNEL_CHOICE_H

#include "../attention/setting.h"

/* The kernel of that name, if it takes the setting's problem and softmax on this machine; otherwise the sentence says
 * which does. */
ith_status ith_kernel_take_named(const char *name, ith_attn_setting *setting);

/* Collective over comm. Measures what wisdom does not know, on rank 0. */
ith_status ith_kernel_choose(ith_comm *comm, ith_attn_setting *setting);

/* What ith_kernel_choose would take on a group of machines like this, as far as is known without measuring: otherwise
 * the first of the table that this machine runs. */
ith_status ith_kernel_foresee(ith_attn_setting *setting);

#endif
