/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks may not differ in. Each shows the others a record of what it was asked for, and all compare them. */
#ifndef ITH_WAN_AGREEMENT_H
#define ITH_WAN_AGREEMENT_H

#include "rank.h"

/* Collective. `mine` is what this rank's arguments are worth. ITH_ERR_ARGUMENT names the field that differs and the
 * rank. On success the rank's team, place and dumps are set; *run is the number of the run. rank->records is allocated,
 * also on failure. */
ith_status ith_agree_on_run(ith_rank *rank, ith_status mine, uint64_t *run);

#endif
