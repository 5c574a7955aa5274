/* SPDX-License-Identifier: Apache-2.0 */
/* Locks by which processes that replace a file take turns. */
#ifndef ITH_BASE_FILE_LOCK_H
#define ITH_BASE_FILE_LOCK_H

#include "context.h"

/* Locks the file "PATH.lock", which is made if it does not exist and stays behind, against all other processes and
 * threads that do the same. *lock is for ith_file_unlock. The system unlocks it when the process ends, however it ends.
 * ITH_ERR_TIMEOUT if another process holds the lock for 10 seconds, ITH_ERR_IO if there can be no such file. On file
 * systems without locks the call succeeds and locks nothing. */
ith_status ith_file_lock(ith_context *context, const char *path, int *lock);
void ith_file_unlock(int lock);

#endif
