/* SPDX-License-Identifier: Apache-2.0 */
/* A link (../wire/link.h) over MPI: datagrams are MPI messages on a communicator of the link's own, control messages
 * travel over watch connections. MPI sees only buffers of the link, never the memory of callers, because MPI cannot
 * take back a send to a process that has died.
 *
 * The files of this folder are compiled with each MPI, into one module for each. */
#ifndef ITH_COMM_MPI_LINK_H
#define ITH_COMM_MPI_LINK_H

#include "../wire/link.h"

#include <mpi.h>
#include <pthread.h>

/* The processes of a group. Their numbers follow the order of hosts, which may differ from the order of MPI ranks. */
typedef struct mpi_party {
    int process, processes;
    int *mpi_ranks;        /* [processes]: the MPI rank of each process */
    int *numbers;          /* [processes]: the number of the process of each MPI rank */
    ith_link_process *all; /* [processes] */
} mpi_party;

typedef struct mpi_link mpi_link;

/* Held during every call of MPI, because several groups of a process may use MPI at the same time. */
extern pthread_mutex_t ith_mpi_lock;

/* Makes a link. On success the communicator, the watch and the lists of the party belong to it. Returns NULL if there
 * is no memory. The lock is held. */
mpi_link *ith_mpi_link_create(MPI_Comm comm, ith_watch *watch, const mpi_party *party);
/* The functions of a link, for ith_wire_open. */
ith_link ith_mpi_link_table(mpi_link *link);
/* Frees the lists of a party. */
void ith_mpi_party_free(mpi_party *party);

/* The transport closes a link when the ranks of this process have left. Ranks of other processes may leave later, and
 * their sends to this process are then still under way. So a closed link stays until all processes have closed theirs.
 */

/* Frees the closed links when all processes have closed theirs. Collective. Waits for `seconds` at most; less than 0:
 * for as long as all processes run, until one of them has sent no pulse (watch.h) for `silent_seconds`. Returns false
 * if a process has died or is silent, or the time is over: then MPI cannot be used any more, and the links stay for
 * ever. The lock is held. */
bool ith_mpi_free_closed(double seconds, double silent_seconds);
/* Says goodbye on the connections of closed links that cannot be freed. The lock is held. */
void ith_mpi_forget_closed(void);
/* The number of links that are in use; whether the group of a closed link has failed. The lock is held. */
int ith_mpi_links_in_use(void);
bool ith_mpi_closed_failed(void);

#endif
