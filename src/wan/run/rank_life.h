/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends a run on one rank. */
#ifndef ITH_WAN_RANK_LIFE_H
#define ITH_WAN_RANK_LIFE_H

#include "rank.h"

/* Collective: begins a run if the arguments of all ranks allow it. `mine` is the status of the checks of this rank's
 * arguments. Finds the ranks that share a pipeline, predicts the memory of every process, and checks the weight files.
 * After success and until ith_rank_end, the rank takes part in its pipeline's run, its observer is open, and it
 * computes with its share of the process's threads. */
ith_status ith_rank_begin(ith_rank *rank, ith_status mine);
/* Ends the run. It must be called after a failure of ith_rank_begin, too. If `status` is a failure, it ends the group,
 * and all ranks return the same status. The last rank that leaves a pipeline frees the data that its ranks share. */
ith_status ith_rank_end(ith_rank *rank, ith_status status);

#endif
