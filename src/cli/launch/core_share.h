/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the cores of a host among the processes of a run, so that no core belongs to two of them. A core here is a
 * logical processor, as in the affinity mask of a thread. */
#ifndef ITH_CLI_CORE_SHARE_H
#define ITH_CLI_CORE_SHARE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A set of cores, for the macros CPU_..._S. A cpu_set_t alone has CPU_SETSIZE, 1,024 cores, and Linux counts up to
 * 8,192. It refuses to fill in a set that is too small for the machine. */
enum { ITH_CORE_SET_PARTS = 8, ITH_CORES_MOST = ITH_CORE_SET_PARTS * CPU_SETSIZE };
typedef struct ith_core_set {
    cpu_set_t parts[ITH_CORE_SET_PARTS];
} ith_core_set;

/* Whether a core is in the set, and the number of cores in it. */
bool ith_cores_have(const ith_core_set *set, int number);
int ith_cores_count(const ith_core_set *set);
/* Adds one core, or the cores of another set. */
void ith_cores_add(ith_core_set *set, int number);
void ith_cores_add_all(ith_core_set *set, const ith_core_set *other);

/* Sets *set to the cores that the first thread of a process may use, or with process 0 the calling thread. Returns
 * false if the system does not tell; *set is then empty. */
bool ith_cores_allowed(pid_t process, ith_core_set *set);
/* Computes the cores of process `own` among `count` processes of this host. masks [count]: the cores that each process
 * may use. A core that several may use goes to one of them, in equal shares; whole physical cores and sockets stay
 * together where shares allow it. Returns false, with the mask of the process itself, if some process would have none,
 * or if there is no memory: then all of them keep their masks. */
bool ith_cores_divide(const ith_core_set *masks, int count, int own, ith_core_set *part);
/* Makes this thread, and threads that it starts from now on, use these cores alone. Does nothing if the user has placed
 * OpenMP's threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY). Returns whether it was done. */
bool ith_cores_pin(const ith_core_set *part);
/* Writes the numbers of the cores as "0-3,8", cut if there are too many. Returns text. */
const char *ith_cores_print(const ith_core_set *mask, char *text, size_t bytes);

#endif
