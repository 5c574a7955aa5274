/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning and the end of a collective call on plans. Every rank shows a record before anything is computed, sent
 * or written: which call it is in, and whether its own checks passed. If ranks are in different calls, got wrong
 * tensors or tensors that differ where they must agree, or were cancelled, all of them return the same status and a
 * sentence that names the rank, and the group stays usable. */
#ifndef ITH_PLAN_OPENING_H
#define ITH_PLAN_OPENING_H

#include "plan.h"

/* The opening of ith_plan_create; `mine` is the status of this rank's checks. *number becomes the plan's, the same on
 * every rank. comm may be NULL, in both functions of this kind. */
ith_status ith_open_creation(ith_context *context, ith_comm *comm, ith_status mine, int64_t *number);

/* The opening of an execution; `mine` is the status of this rank's checks of its tensors. In place the ranks
 * then know the addresses of one another's tensors. */
ith_status ith_open_execution(ith_plan *plan, const ith_attn_tensors *tensors, ith_status mine);
/* To be called once after each opening that succeeded; `mine` is the status of this rank's part. */
ith_status ith_close_execution(ith_plan *plan, ith_status mine);

#endif
