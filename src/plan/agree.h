/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks agree before they act. A rank's context and its communicator's may be two: what is passed between ranks lies in
 * the second, what the caller reads in the first. comm may be NULL everywhere: one rank. */
#ifndef ITH_PLAN_AGREE_H
#define ITH_PLAN_AGREE_H

#include "../attention/setting.h"

/* Collective. Every rank brings what it came to alone and all get the same: ITH_OK, or the failure of the lowest rank
 * that failed. */
ith_status ith_agree(ith_context *context, ith_comm *comm, ith_status mine);

/* Puts the sentence of a failed operation of the communicator into the caller's context. Returns status. */
ith_status ith_pass_on(ith_context *context, ith_comm *comm, ith_status status);

/* Collective: whether all ranks mean the same problem and ask for the same plan. Every rank is told which parameter
 * differs, from the lowest rank that differs from rank 0. Strides may differ. */
ith_status ith_agree_on_request(ith_comm *comm, const ith_attn_setting *setting, const ith_attn_options *options);

#endif
