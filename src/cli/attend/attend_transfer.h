/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a whole problem among several processes: the process of rank 0 has them whole, and each process has
 * the shares of its own ranks. In a single process these functions do nothing. */
#ifndef ITH_CLI_ATTEND_TRANSFER_H
#define ITH_CLI_ATTEND_TRANSFER_H

#include "attend_whole.h"

/* Sends the problem from rank 0 to all ranks, with kv_lengths, key_bias and mask, and each rank's rows of q, k and v.
 * The other processes allocate whole tensors here, and touch only the rows of their own ranks. Collective.
 * ITH_ERR_MEMORY ends the group. */
ith_status ith_attend_scatter(ith_attend_whole *whole, ith_comm *comm);
/* Brings o and lse_shares of all ranks to rank 0. Collective. */
ith_status ith_attend_gather(const ith_attend_whole *whole, ith_comm *comm);

#endif
