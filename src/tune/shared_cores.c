/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the hosts that share cores (shared_cores.h). Hosts lie on one machine if Linux has the same boot id on both;
 * they share cores if the affinity masks of their processes have cores in common. */
#include "shared_cores.h"

#include "../plan/agree.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Linux counts up to 8,192 cores, and refuses to fill in a mask that is too small for the machine. A cpu_set_t alone
 * has 1,024. */
enum { MASK_PARTS = 8192 / CPU_SETSIZE };

/* The record of a rank. */
typedef struct cores {
    char boot[40]; /* the boot id of Linux; "" if it is unknown */
    cpu_set_t mask[MASK_PARTS];
} cores;

static cores cores_here(void)
{
    cores mine;
    memset(&mine, 0, sizeof mine);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(mine.boot, sizeof mine.boot, file))
        mine.boot[0] = 0;
    if (file)
        fclose(file);
    if (sched_getaffinity(0, sizeof mine.mask, mine.mask))
        memset(mine.mask, 0, sizeof mine.mask);
    return mine;
}

static bool have_common(const cores *a, const cores *b)
{
    cpu_set_t both[MASK_PARTS];
    CPU_AND_S(sizeof both, both, a->mask, b->mask);
    return a->boot[0] && !strcmp(a->boot, b->boot) && CPU_COUNT_S(sizeof both, both) > 0;
}

/* Counts the hosts, and the cores that the processes of the first host may use. */
static ith_shared_cores count(const ith_comm *comm, const cores *all)
{
    ith_shared_cores found = {.hosts = 1};
    const ith_place first = ith_comm_place_of(comm, 0);
    ith_place before = first;
    cores sum = *all; /* its mask: the cores of the processes of the first host */
    for (int rank = 1; rank < ith_comm_size(comm); rank++) {
        const ith_place here = ith_comm_place_of(comm, rank);
        if (here.host == first.host)
            CPU_OR_S(sizeof sum.mask, sum.mask, sum.mask, all[rank].mask);
        else if (here.host != before.host && !have_common(all, &all[rank]))
            break;
        found.hosts += here.host != before.host;
        before = here;
    }
    found.units = CPU_COUNT_S(sizeof sum.mask, sum.mask);
    return found;
}

ith_status ith_shared_cores_count(ith_context *context, ith_comm *comm, ith_shared_cores *found)
{
    const cores mine = cores_here();
    cores *all = ith_alloc(context, ith_comm_size(comm), sizeof *all, "the cores of the ranks");
    ith_status status = ith_agree(context, comm, all ? ITH_OK : ITH_ERR_MEMORY);
    if (!status)
        status = ith_pass_on(context, comm, ith_comm_allgather(comm, &mine, sizeof mine, all));
    if (!status)
        *found = count(comm, all);
    ith_free(context, all);
    return status;
}
