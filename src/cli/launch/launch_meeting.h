/* SPDX-License-Identifier: Apache-2.0 */
/* The first meeting of the processes of a run: compares their versions and options, shares out cores, prints the map.
 */
#ifndef ITH_CLI_LAUNCH_MEETING_H
#define ITH_CLI_LAUNCH_MEETING_H

#include "launch.h"

/* Numbers of threads. */
typedef struct ith_launch_threads {
    int here, all; /* of this process; of all processes */
} ith_launch_threads;

/* Compares the processes of all ranks, and gives this rank its cores and threads. Collective. failed: this process has
 * an error to report, so its options are not compared. If processes differ, `sentence` names the difference and is the
 * same on all ranks; otherwise it becomes "". A failure of the group is returned. */
ith_status ith_launch_meet(const ith_launch *launch, const ith_launch_work *work, bool failed, ith_comm *comm,
                           ith_launch_threads *threads, char *sentence, size_t bytes);
/* Prints the map of a run in this process alone. */
void ith_launch_map_here(const ith_launch *launch);

#endif
