/* SPDX-License-Identifier: Apache-2.0 */
/* How processes that are to be ranks find one another: through sockets in a folder. */
#ifndef SOCKET_MEETING_H
#define SOCKET_MEETING_H

#include "socket_transport.h"

/* Connects this rank to all others, each of which calls it with its own rank and the same folder, within `seconds`. The
 * folder exists, is empty before the first rank comes, and belongs to this group alone; its path is short (about 90
 * bytes). Returns the state for ith_comm_create; NULL on failure, with a sentence in `problem` (SOCKET_SENTENCE bytes).
 */
void *socket_meet(const char *folder, int rank, int ranks, double seconds, char *problem);

/* Forks `ranks` processes, each of which exits with what fn(rank, folder, user) returns, and waits for them. The folder
 * is a new one for socket_meet, and is removed at the end. statuses [ranks] becomes what waitpid tells of each. Returns
 * how many did not exit with 0, or -1 if they could not all be started. No other thread may run in this process. */
int socket_run_processes(int ranks, int (*fn)(int rank, const char *folder, void *user), void *user, int *statuses);

#endif
