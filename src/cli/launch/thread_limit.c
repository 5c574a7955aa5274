/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the threads of a command, and prepares the process for them (thread_limit.h). */
#include "thread_limit.h"

#include "../cli.h"
#include "busy_machine.h"
#include "thread_trial.h"

#include <errno.h>
#include <omp.h>
#include <string.h>

int ith_cli_limited_threads(int processes)
{
    if (omp_get_max_threads() != omp_get_num_procs())
        return omp_get_max_threads();
    const int usable = ith_processor_count();
    if (usable == omp_get_num_procs())
        return 0;
    return usable > processes ? usable / processes : 1;
}

int ith_cli_threads(int64_t asked)
{
    const int limited = asked ? (int)asked : ith_cli_limited_threads(1);
    return limited ? limited : omp_get_max_threads();
}

int ith_cli_prepare_threads(int64_t ranks, int64_t threads, int others)
{
    const int asked = ith_cli_threads(threads);
    const int64_t count = asked > ranks ? asked : ranks; /* each rank has a thread */
    int64_t most;
    if (count > ITH_CLI_THREADS_MAX)
        return ith_cli_error("OMP_NUM_THREADS asks for %lld threads: at most %d are possible", (long long)count,
                             ITH_CLI_THREADS_MAX);
    /* The OpenMP teams of all ranks have `count` threads together; the calling thread's own team may have as many. */
    const int64_t needed = 2 * count + others + (count > 1 ? ith_cli_share_machine_threads() : 0);
    if (ith_cli_can_start(needed, &most)) {
        if (count > 1)
            ith_cli_share_machine();
        return ITH_EXIT_DONE;
    }
    return ith_cli_error("%lld thread%s on %lld rank%s may need %lld more than there are, and the system lets this "
                         "process start %lld (%s): ask for fewer with --threads and --ranks, or raise the limit "
                         "(ulimit -u, ulimit -v, or pids.max of the control group)",
                         (long long)count, ith_cli_plural(count), (long long)(ranks ? ranks : 1),
                         ith_cli_plural(ranks ? ranks : 1), (long long)needed, (long long)most, strerror(errno));
}
