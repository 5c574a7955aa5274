/* SPDX-License-Identifier: Apache-2.0 */
/* The group of ranks that a plan is for, and where its ranks run. */
#ifndef ITH_PLAN_GROUP_H
#define ITH_PLAN_GROUP_H

#include "../comm/comm.h"

/* A group is cut into blocks of n consecutive ranks, from rank 0 on. `process_ranks` is the largest n for which every
 * block lies in one process, whose ranks share memory; `host_ranks` is the largest n for which every block lies on one
 * host. So a ulysses axis of U ranks, which are consecutive, stays on one host if U divides host_ranks. */
typedef struct ith_group {
    int ranks, rank; /* number of ranks, and this rank */
    int process_ranks, host_ranks;
    int hosts; /* number of hosts */
} ith_group;

/* The group of a communicator, which may be NULL. The same on every rank, except for the member `rank`. */
ith_group ith_group_of(const ith_comm *comm);
/* A group on one host, for predictions. The ranks are threads of one process if shared_memory is true; otherwise each
 * is a process of its own. */
ith_group ith_group_on_one_host(int ranks, int rank, bool shared_memory);

/* Whether all ranks share memory. */
bool ith_group_shares_memory(const ith_group *group);
/* Whether every ulysses axis of this length lies in one process. */
bool ith_group_axis_shares_memory(const ith_group *group, int ulysses);
/* The number of ranks among which the default ulysses axis is chosen: its length divides this number. It keeps the axis
 * on one host. Hosts with different numbers of ranks may have no common divisor; the axis may then cross hosts. */
int ith_group_axis_ranks(const ith_group *group);

#endif
