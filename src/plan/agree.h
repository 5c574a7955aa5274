/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement of ranks before they act. A rank's context and the context of its communicator may differ. Sentences from
 * other ranks arrive in the communicator's context, and these functions copy them to the context that the caller reads.
 * comm may be NULL in every function, for a single rank. */
#ifndef ITH_PLAN_AGREE_H
#define ITH_PLAN_AGREE_H

#include "../attention/setting.h"

/* Collective. Returns the same status on all ranks: ITH_OK, or the failure of the lowest rank that failed. mine: the
 * status of this rank. */
ith_status ith_agree(ith_context *context, ith_comm *comm, ith_status mine);

/* If an operation of the communicator failed, copies its error sentence to the caller's context. Returns status. */
ith_status ith_pass_on(ith_context *context, ith_comm *comm, ith_status status);

/* Collective. Gives all ranks the decision of rank 0: its status and, if the status is ITH_OK, `bytes` bytes of data.
 * Fails on all ranks if a transport has changed the data. mine: the status of rank 0; ITH_OK on the other ranks. */
ith_status ith_agree_with_first(ith_context *context, ith_comm *comm, ith_status mine, void *data, int64_t bytes);

/* Collective. Fails on all ranks unless all have the same problem, except for strides, and ask for the same plan. The
 * error sentence names the lowest rank that differs from rank 0, and the parameter in which it differs. */
ith_status ith_agree_on_request(ith_comm *comm, const ith_attn_setting *setting, const ith_attn_options *options);

#endif
