/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of this host while they are being connected. MPI does not name a process that dies or stops before all
 * have initialised MPI; its calls then wait for ever. So each process listens at a Unix socket, whose name holds the
 * run and the number of the process, and keeps a connection to every other process of the run on this host. The system
 * closes the connections of a process that dies.
 *
 * Processes have the numbers that the launcher gave them. Functions accept NULL, and then do nothing. */
#ifndef ITH_COMM_MPI_PRESENCE_H
#define ITH_COMM_MPI_PRESENCE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mpi_presence mpi_presence;

/* Opens the socket of this process. Returns NULL if the launcher or the run is unknown, or the socket cannot be opened:
 * then only MPI shows failures. seconds: the time limit of connecting. */
mpi_presence *ith_mpi_presence_begin(double seconds);
/* Looks for new processes and for failures. Returns false if a process has died, or has failed and said why; `sentence`
 * then names it. Cheap: looks every 10 ms at most. */
bool ith_mpi_presence_look(mpi_presence *presence, char *sentence, size_t bytes);
/* Whether a look has found a process that refuses to connect, while all processes are alive. */
bool ith_mpi_presence_refused(const mpi_presence *presence);
/* Writes the processes that may be to blame for a wait that took too long: the processes that have stopped; if none
 * has, the processes that have not come. heard [size]: processes that have answered by other means; NULL: none. */
void ith_mpi_presence_explain(mpi_presence *presence, const bool *heard, char *text, size_t bytes);
/* Shows the other processes that this one is connected, or has failed with a sentence, and closes the socket. After a
 * failure it stays until the processes of this host know of it: at most 5 s and until the limit, but 1 s at least.
 * refuses: it has failed although all processes are alive. */
void ith_mpi_presence_end(mpi_presence *presence, const char *failure, bool refuses);

#endif
