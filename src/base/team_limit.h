/* SPDX-License-Identifier: Apache-2.0 */
/* How many threads this process may have. OpenMP ends the program if a thread cannot be started, so numbers are checked
 * before it is asked. */
#ifndef ITH_BASE_TEAM_LIMIT_H
#define ITH_BASE_TEAM_LIMIT_H

#include "context.h"

/* The least of OpenMP's limit, the user's limit of processes, the limit of the control group, and 64 threads a
 * processor or 1024 in all, whichever is more. At least 1. */
int ith_thread_limit(void);

/* ITH_ERR_ARGUMENT with a sentence if `count` of what `name` says is more than that. */
ith_status ith_thread_limit_check(ith_context *context, const char *name, int64_t count);

/* Before a team of threads is used. ITH_ERR_UNSUPPORTED with a sentence for more than one thread in the forked child of
 * a process that has had such a team: OpenMP would wait for ever for threads that are not there. */
ith_status ith_team_check(ith_context *context, int threads);

#endif
