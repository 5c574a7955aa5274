/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the number of threads of this process. The OpenMP runtime ends the program if it cannot start a thread, so
 * the library checks the number first. */
#ifndef ITH_BASE_TEAM_LIMIT_H
#define ITH_BASE_TEAM_LIMIT_H

#include "context.h"

/* Returns the largest number of threads that is allowed: the minimum of OpenMP's limit, the user's limit of processes
 * (RLIMIT_NPROC), the limit of the control groups (pids.max), and max(64 threads per processor, 1024); at least 1. */
int ith_thread_limit(void);

/* The number of threads where the caller asks for `asked`: 0 means `usual`, or ith_thread_limit if that is less. */
int ith_threads_or(int asked, int usual);

/* Fails with ITH_ERR_ARGUMENT if count exceeds ith_thread_limit. name: the argument that the error sentence is
 * about. */
ith_status ith_thread_limit_check(ith_context *context, const char *name, int64_t count);

/* To be called before a function computes. Fails with ITH_ERR_UNSUPPORTED in a forked child if its parent made the
 * context, and if threads > 1 and its parent has used an OpenMP team: the child lacks the threads of the team, and
 * OpenMP would wait for them forever. */
ith_status ith_team_check(ith_context *context, int threads);

#endif
