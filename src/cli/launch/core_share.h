/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the cores of a host among the processes of a run, so that no core belongs to two of them. A core here is a
 * logical processor, as in the affinity mask of a thread. */
#ifndef ITH_CLI_CORE_SHARE_H
#define ITH_CLI_CORE_SHARE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* The cores that this thread may use. Returns false if the system does not tell; *mask is then empty. */
bool ith_cores_allowed(cpu_set_t *mask);
/* Computes the cores of process `own` among `count` processes of this host. masks [count]: the cores that each process
 * may use. A core that several may use goes to one of them, in equal shares; whole physical cores and sockets stay
 * together where shares allow it. Returns false, with the mask of the process itself, if some process would have none:
 * then all of them keep their masks. */
bool ith_cores_divide(const cpu_set_t *masks, int count, int own, cpu_set_t *part);
/* Makes this thread, and threads that it starts from now on, use these cores alone. Does nothing if the user has placed
 * OpenMP's threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY). Returns whether it was done. */
bool ith_cores_pin(const cpu_set_t *part);
/* Writes the numbers of the cores as "0-3,8", cut if there are too many. Returns text. */
const char *ith_cores_print(const cpu_set_t *mask, char *text, size_t bytes);

#endif
