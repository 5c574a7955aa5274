/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps OpenMP fast on a machine whose processors other processes use, too. */
#ifndef ITH_CLI_BUSY_MACHINE_H
#define ITH_CLI_BUSY_MACHINE_H

/* From now on, waiting OpenMP threads sleep while other processes want the processors, and spin otherwise. Does nothing
 * if the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, if the OpenMP runtime is not GNU's, or if the system does not
 * report waiting times (/proc/self/task/N/schedstat). */
void ith_cli_share_machine(void);

/* The most threads that ith_cli_share_machine starts. */
int ith_cli_share_machine_threads(void);

#endif
