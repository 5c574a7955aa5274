/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on names of files that a process will write. */
#ifndef ITH_CLI_NAME_LOCK_H
#define ITH_CLI_NAME_LOCK_H

#include <stdbool.h>

/* A lock that this process holds. */
typedef struct ith_name_lock {
    char *path; /* the empty file that is locked; NULL: nothing is locked */
    int file;
} ith_name_lock;

/* Locks the name `path` against other processes that do the same. Returns false if another one has it. The lock is on a
 * file .NAME.lock beside it, which ith_name_lock_release removes; the system unlocks it when the process ends, however
 * it ends. Where there can be no such file, the call returns true and locks nothing. */
bool ith_name_lock_take(const char *path, ith_name_lock *lock);
void ith_name_lock_release(ith_name_lock *lock);

#endif
