/* SPDX-License-Identifier: Apache-2.0 */
/* MPI in this process: initialised once, finalised at exit if it can still be used. An application that has initialised
 * MPI itself also finalises it. */
#ifndef ITH_COMM_MPI_START_H
#define ITH_COMM_MPI_START_H

#include "mpi_presence.h"

#include <ithaca/ithaca.h>
#include <mpi.h>

/* Initialises MPI unless that has been done. Refuses an MPI other than the MPI of this module, and a launcher of
 * another MPI. Fails if another process dies, or if MPI is not initialised after `seconds`, because another process
 * does not come. A separate thread may then stay in a call of MPI for ever, and MPI cannot be used. The caller holds
 * the lock of mpi_link.h. */
ith_status ith_mpi_start(mpi_presence *presence, double seconds, char *sentence, size_t bytes);
/* The copy of MPI_COMM_WORLD that ith_mpi_start has made when it initialised MPI; the caller owns it. MPI_COMM_NULL if
 * an earlier call has taken it, or if the application has initialised MPI. The lock is held. */
MPI_Comm ith_mpi_take_comm(void);
/* From now on MPI cannot be used, since a process has died or does not answer. The lock is held. */
void ith_mpi_give_up(void);
/* Whether MPI cannot be used. */
bool ith_mpi_has_given_up(void);
/* The processes have refused to connect, and all are alive. Some may end without MPI_Finalize, so at exit this process
 * waits in it for a second at most. */
void ith_mpi_shorten_end(void);

#endif
