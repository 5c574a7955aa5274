/* SPDX-License-Identifier: Apache-2.0 */
/* Reads mapped files that may lose their pages. Pages are lost if another process cuts the file, or if its disk fails.
 * The system answers an access to a lost page with the signal SIGBUS, which ends the process by default. Inside a guard
 * the access becomes an ordinary failure. */
#ifndef ITH_BASE_FILE_FAULT_H
#define ITH_BASE_FILE_FAULT_H

#include "context.h"

/* Calls read(user) on the calling thread. Returns true if `read` returns, and false if `read` accesses a lost page. In
 * that case the guard ends `read` at this access, so `read` must hold no lock and no memory that it would release
 * later.
 *
 * The first call installs a handler for SIGBUS, which stays. A SIGBUS of any other origin goes to the handler that was
 * installed before, or has its default action. Guards may be nested, and any number of threads may be inside one. A
 * guard takes about ten nanoseconds, and no system call. */
bool ith_file_fault_guard(void (*read)(void *user), void *user);

/* Installs the handler again if the program has replaced it. After that, a SIGBUS that does not come from a guard goes
 * to the handler of the program. */
void ith_file_fault_renew(void);

/* Records the error sentence for a guard that has returned false, and returns ITH_ERR_IO. file: the name of the file,
 * or words for it if the name is not known. */
ith_status ith_fail_file_fault(ith_context *context, const char *file);

#endif
