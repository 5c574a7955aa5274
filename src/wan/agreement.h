/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all ranks of a run have the same options and model sizes. Every rank sends its values to all ranks, and
 * compares the values of all ranks, so that all ranks come to the same result. */
#ifndef ITH_WAN_AGREEMENT_H
#define ITH_WAN_AGREEMENT_H

#include "rank.h"

/* Collective: sends this rank's options and model sizes to all ranks, and compares the values of all ranks. `mine` is
 * the status of the checks of this rank's own arguments. If a value differs between ranks, returns ITH_ERR_ARGUMENT
 * with an error message that names the value and the rank. On success sets rank->team, rank->position, rank->dumps, and
 * *run, a random number that identifies the run. The caller frees rank->records, also after a failure. */
ith_status ith_agree_on_run(ith_rank *rank, ith_status mine, uint64_t *run);

#endif
