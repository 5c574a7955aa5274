/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over comm/wire and the links of socket_link.h, in processes and in threads. A failure of the machinery itself
 * ends the process with a line on standard error. */
#ifndef ITH_TESTS_WIRE_GROUP_H
#define ITH_TESTS_WIRE_GROUP_H

#include "support/socket_link.h"

#include <sys/types.h>

#define WIRE_GROUP_RANKS 6

/* The ranks of a run, and their links. */
typedef struct wire_task {
    int ranks, each;      /* number of all ranks, and of the ranks in each process */
    const roughness *how; /* NULL: the links are good */
    ith_rank_fn fn;
    void *user;
} wire_task;

/* Runs all ranks as threads of this process, in "processes" of `each` ranks. Returns how many failed, or kept memory of
 * their contexts. */
int wire_run_threads(const wire_task *task);

/* Starts the processes of a run; pids has room for LINK_PROCESSES. Returns their number. No thread may run. */
int wire_start(const wire_task *task, pid_t *pids);
/* Waits for the processes of a run. Returns how many failed; process `dead` is not counted. */
int wire_finish(const pid_t *pids, int processes, int dead);

/* As ith_comm_create_local, for ranks that are threads of this process, in "processes" of wire_group_each ranks. */
extern int wire_group_each;
ith_status wire_group_create(ith_context *const *contexts, int ranks, ith_comm **comms);

#endif
