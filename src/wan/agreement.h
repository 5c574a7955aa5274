/* SPDX-License-Identifier: Apache-2.0 */
/* The options and sizes that must be the same on all ranks of a run. Each rank shows the others a record of its own,
 * and all ranks compare all records, so that they come to the same result. */
#ifndef ITH_WAN_AGREEMENT_H
#define ITH_WAN_AGREEMENT_H

#include "rank.h"

/* Collective. `mine` is the status of this rank's arguments. ITH_ERR_ARGUMENT names a field that differs, and the rank.
 * On success sets the rank's team, position and dumps, and *run, the number of the run. The caller frees rank->records,
 * also after a failure. */
ith_status ith_agree_on_run(ith_rank *rank, ith_status mine, uint64_t *run);

#endif
