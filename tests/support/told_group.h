/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process. Their transport reports the processes and hosts that the test has chosen for
 * them. */
#ifndef ITH_TESTS_TOLD_GROUP_H
#define ITH_TESTS_TOLD_GROUP_H

#include "support/rank_group.h"

#include <ithaca/transport.h>

/* The function ith_transport.place of the groups that are made from now on. */
extern void (*told_place)(void *state, int rank, ith_place *place);

/* A function for group_connect (rank_group.h). */
ith_status told_group_create(ith_context *const *contexts, int ranks, ith_comm **comms);

/* The number of a rank of a group among all ranks. state: as `place` gets it. */
int told_world_rank(const void *state, int rank);

#endif
