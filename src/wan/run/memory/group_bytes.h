/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the ranks of a run need to reach one another: communicators, and records of all ranks. It grows with
 * the square of the number of ranks in a process. */
#ifndef ITH_WAN_GROUP_BYTES_H
#define ITH_WAN_GROUP_BYTES_H

#include "../team.h"

/* The bytes of the communicators of all ranks of the run, and of the records, in the process of `team`. */
int64_t ith_group_bytes(const ith_team *team);
/* The bytes of the communicators of sub-groups of `size` consecutive or evenly spaced ranks, to one of which each rank
 * belongs. */
int64_t ith_group_bytes_parts(const ith_team *team, int size);
/* The bytes that the ranks hold while a group of `parent` ranks is split. */
int64_t ith_group_bytes_split(const ith_team *team, int parent);

#endif
