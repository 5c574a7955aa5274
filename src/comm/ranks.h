/* SPDX-License-Identifier: Apache-2.0 */
/* Runs ranks as threads of this process, on communicators of any transport. */
#ifndef ITH_COMM_RANKS_H
#define ITH_COMM_RANKS_H

#include "comm.h"

/* Makes the communicators of all ranks of this process, comms[i] with contexts[i]. On failure the error sentence is in
 * contexts[0], and the comms are NULL. */
typedef ith_status (*ith_ranks_make)(void *user, ith_context *const *contexts, int ranks, ith_comm **comms);

/* Checks the arguments that ith_run_ranks and ith_run_ranks_connected have in common. */
ith_status ith_ranks_check(ith_context *context, int ranks, int threads, ith_rank_fn fn);
/* As ith_run_ranks, on communicators that `make` makes. The arguments have been checked. */
ith_status ith_ranks_run(ith_context *context, ith_ranks_make make, void *make_user, int ranks, int threads,
                         ith_rank_fn fn, void *user);
/* The bytes that a run of `ranks` ranks holds besides their communicators. */
int64_t ith_ranks_bytes(int ranks);

#endif
