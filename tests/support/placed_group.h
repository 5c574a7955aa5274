/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process, on a transport that claims that they run in several processes and on several
 * hosts (ith_transport.place). When a call opens, the transport replaces each address that a rank shows to a rank of
 * another "process" by an invalid one, so that a program that uses it crashes. */
#ifndef ITH_TESTS_PLACED_GROUP_H
#define ITH_TESTS_PLACED_GROUP_H

#include "support/rank_group.h"

/* [rank] The process and the host of each rank, for the groups that are made from now on. */
extern int placed_process[GROUP_RANKS], placed_host[GROUP_RANKS];

/* Puts `ranks_of_process` consecutive ranks into each process, and `processes_of_host` processes on each host. */
void placed_evenly(int ranks_of_process, int processes_of_host);

/* Makes the links between processes slow, for groups that are made from now on; 0: not slow. The data that a rank sends
 * and receives in an exchange are cut into this many slices. A slice moves only in a call of the transport by this
 * rank, and takes a millisecond: as with sockets, whose buffers are small. */
extern int placed_slices;

/* The bytes a second that a rank sends to other processes, for groups that are made from now on; 0: no limit. The first
 * placed_burst bytes are free: as with a token bucket, which fills at the same rate while nothing is sent. */
extern double placed_bytes_per_second, placed_burst;

/* A function for group_connect (rank_group.h). */
ith_status placed_group_create(ith_context *const *contexts, int ranks, ith_comm **comms);

#endif
