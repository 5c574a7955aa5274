/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the limits on the threads of this process, and checks numbers of threads (team_limit.h). */
#include "team_limit.h"

#include "control_groups.h"
#include "size.h"

#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS_A_PROCESSOR 64 /* number of threads that are allowed for each processor */
#define FEWEST 1024            /* number of threads that are allowed on any machine */

static int64_t limit_of_user(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NPROC, &limit) || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT32_MAX)
        return INT64_MAX;
    return (int64_t)limit.rlim_cur;
}

/* The limits of the control groups, which are read once. */
static int64_t quota, tasks;

static void read_groups(void)
{
    quota = ith_processor_quota("");
    tasks = ith_task_limit("");
}

static void know_groups(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_groups);
}

int ith_processor_count(void)
{
    know_groups();
    return (int)ith_min64(omp_get_num_procs(), quota);
}

int ith_thread_limit(void)
{
    know_groups();
    int64_t most = ith_max64((int64_t)THREADS_A_PROCESSOR * omp_get_num_procs(), FEWEST);
    most = ith_min64(most, omp_get_thread_limit());
    most = ith_min64(most, limit_of_user());
    most = ith_min64(most, tasks);
    return (int)ith_max64(most, 1);
}

int ith_threads_or(int asked, int usual)
{
    return asked ? asked : (int)ith_min64(usual, ith_thread_limit());
}

ith_status ith_thread_limit_check(ith_context *context, const char *name, int64_t count)
{
    int most = ith_thread_limit();
    if (count <= most)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %lld, and this process may have at most %d thread%s", name,
                    (long long)count, most, most == 1 ? "" : "s");
}

ith_status ith_team_check(ith_context *context, int threads)
{
    ith_status status = ith_context_check_process(context);
    if (status || threads <= 1)
        return status;
    long here = (long)getpid(), known = ith_context_note_team(context, here);
    if (known == here)
        return ITH_OK;
    return ith_fail(
        context, ITH_ERR_UNSUPPORTED,
        "process %ld had a team of threads when it forked this one, %ld, where they are missing: compute on "
        "one thread here, or after exec or posix_spawn",
        known, here);
}
