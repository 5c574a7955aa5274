/* SPDX-License-Identifier: Apache-2.0 */
/* The end of MPI in this process. */
#ifndef ITH_COMM_MPI_FINALIZE_H
#define ITH_COMM_MPI_FINALIZE_H

/* Calls MPI_Finalize, and waits for it until the limit. It waits for all processes, and would wait for ever for one
 * that is stopped. After the limit the process must end without another call of MPI. */
void ith_mpi_finalize(double seconds);

#endif
