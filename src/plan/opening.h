/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning and the end of a collective call on plans. Every rank shows a record before anything is computed, sent
 * or written: which call it is in, and whether its own checks passed. All ranks return the same failure, with an
 * error sentence that names a rank, if ranks are in different calls, if a rank has invalid tensors or was cancelled, or
 * if tensors differ that must be equal. The group stays usable. */
#ifndef ITH_PLAN_OPENING_H
#define ITH_PLAN_OPENING_H

#include "plan.h"

/* Opens ith_plan_create. mine: the result of this rank's checks. *number becomes the number of the plan, the same on
 * every rank. comm may be NULL, for a single rank. */
ith_status ith_open_creation(ith_context *context, ith_comm *comm, ith_status mine, int64_t *number);

/* Opens an execution. mine: the result of this rank's checks of its tensors. If ranks use tensors of other ranks in
 * place, each then knows their addresses. */
ith_status ith_open_execution(ith_plan *plan, const ith_attn_tensors *tensors, ith_status mine);
/* Ends an execution. To be called once after each successful ith_open_execution. mine: the result of this rank's
 * part. */
ith_status ith_close_execution(ith_plan *plan, ith_status mine);

#endif
