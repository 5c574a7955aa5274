/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the processes that form a group of ranks, through sockets in a folder. */
#ifndef SOCKET_MEETING_H
#define SOCKET_MEETING_H

#include "socket_transport.h"

/* Connects this rank to all others within `seconds`. Every process calls this with its own rank and the same folder.
 * The folder exists, is empty before the first rank comes, and belongs to this group alone; its path has at most about
 * 90 bytes. Returns the state for ith_comm_create; NULL on failure, with a sentence in `problem` (SOCKET_SENTENCE
 * bytes). */
void *socket_meet(const char *folder, int rank, int ranks, double seconds, char *problem);

/* Forks `ranks` processes and waits for them. Each calls fn(rank, folder, user) and exits with the result. folder: a
 * new folder for socket_meet, which is removed at the end. statuses [ranks]: receives the status of each process from
 * waitpid. Returns the number of processes that did not exit with 0, or -1 if not all could be started. No other thread
 * may run in this process. */
int socket_run_processes(int ranks, int (*fn)(int rank, const char *folder, void *user), void *user, int *statuses);

#endif
