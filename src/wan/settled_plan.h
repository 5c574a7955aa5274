/* Plans whose kernel does not depend on the moment, so that two runs of the engine give the same bits. */
#ifndef ITH_WAN_SETTLED_PLAN_H
#define ITH_WAN_SETTLED_PLAN_H

#include <ithaca/ithaca.h>

/* ith_plan_create, with the kernel that is foreseen (by wisdom, or else the first of the table) where the options,
 * which may be NULL, name none: nothing is measured. */
ith_status ith_settled_plan_create(ith_context *context, const ith_attn_problem *problem,
                                   const ith_attn_options *options, ith_comm *comm, ith_plan **out);

#endif
