/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement of ranks before they act. The context of a rank and the context of its communicator may be two: sentences
 * that pass between ranks lie in the second, the caller reads the first. comm may be NULL everywhere, for one rank. */
#ifndef ITH_PLAN_AGREE_H
#define ITH_PLAN_AGREE_H

#include "../attention/setting.h"

/* Collective. `mine` is the status of this rank. All ranks get the same: ITH_OK, or the failure of the lowest rank that
 * failed. */
ith_status ith_agree(ith_context *context, ith_comm *comm, ith_status mine);

/* Puts the sentence of a failed operation of the communicator into the caller's context. Returns status. */
ith_status ith_pass_on(ith_context *context, ith_comm *comm, ith_status status);

/* Collective. Fails on all ranks unless all have the same problem, strides aside, and ask for the same plan. The
 * sentence names the parameter in which the lowest such rank differs from rank 0. */
ith_status ith_agree_on_request(ith_comm *comm, const ith_attn_setting *setting, const ith_attn_options *options);

#endif
