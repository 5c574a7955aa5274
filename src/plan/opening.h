/* SPDX-License-Identifier: Apache-2.0 */
/* How a collective call on plans begins and ends. Every rank shows a card before anything is computed, sent or written:
 * which call it is in, and whether it could go on. Ranks that are in different calls, that were given wrong tensors or
 * different ones, or that were cancelled, all return with the same status and a sentence that names the rank, and the
 * group is as good as before. */
#ifndef ITH_PLAN_OPENING_H
#define ITH_PLAN_OPENING_H

#include "plan.h"

/* The opening of ith_plan_create: whether all ranks are in it and could go on. *number becomes the plan's, the same on
 * every rank. comm may be NULL, in both functions of this kind. */
ith_status ith_open_creation(ith_context *context, ith_comm *comm, ith_status mine, int64_t *number);

/* The opening of an execution; `mine` is what this rank says of its tensors. In place the ranks then know where one
 * another's tensors lie. */
ith_status ith_open_execution(ith_plan *plan, const ith_attn_tensors *tensors, ith_status mine);
/* Once after each opening that went well; `mine` is what became of this rank's part. */
ith_status ith_close_execution(ith_plan *plan, ith_status mine);

#endif
