/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that has other work to do. */
#ifndef ITH_CLI_BUSY_MACHINE_H
#define ITH_CLI_BUSY_MACHINE_H

/* From now on, threads that wait for one another sleep while other processes want the processors, and spin otherwise.
 * Does nothing if the user has said how threads wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT), and where the OpenMP runtime is
 * not GNU's or the system does not tell how long threads waited for a processor (/proc/self/task/N/schedstat). */
void ith_cli_share_machine(void);

#endif
