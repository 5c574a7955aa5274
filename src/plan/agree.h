/* Whether all ranks mean the same problem and ask for the same plan. */
#ifndef ITH_PLAN_AGREE_H
#define ITH_PLAN_AGREE_H

#include "../attention/setting.h"

/* Collective. Every rank is told which parameter differs, from the lowest rank that differs from rank 0. The setting's
 * problem and kernel are compared; strides may differ. */
ith_status ith_agree_on_problem(ith_comm *comm, const ith_attn_setting *setting, const ith_attn_options *options);

#endif
