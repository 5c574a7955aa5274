/* SPDX-License-Identifier: Apache-2.0 */
/* The end of MPI in this process. */
#ifndef ITH_COMM_MPI_FINALIZE_H
#define ITH_COMM_MPI_FINALIZE_H

#include <stdatomic.h>
#include <stdbool.h>

/* Waits for a call of MPI in a thread of its own, which then sets *ended, until the time `end` (ith_watch_now) at most.
 * Returns whether the call has ended. */
bool ith_mpi_await(atomic_bool *ended, double end);
/* Calls MPI_Finalize, and waits for its end, for `seconds` at most: MPI_Finalize waits for all processes, and for ever
 * if one is stopped. If the time has passed, this process must end without another call of MPI. */
void ith_mpi_finalize(double seconds);

#endif
