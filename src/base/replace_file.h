/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are there whole or not at all: written beside the name, then renamed. */
#ifndef ITH_BASE_REPLACE_FILE_H
#define ITH_BASE_REPLACE_FILE_H

#include "context.h"

#include <stdio.h>

/* Writes the contents. A failure to write may be left to ith_replace_file to find; any other ends the call of it with
 * that status and the sentence that is recorded in the context. */
typedef ith_status (*ith_write_fn)(FILE *file, void *user);

/* Puts what `write` writes into the file at `path`, in place of what was there. A failure (ITH_ERR_IO, ITH_ERR_MEMORY,
 * that of `write`) leaves that as it was. A device (/dev/null) is written to as it stands. A folder, a pipe, a socket,
 * a disk or a terminal is refused; the call never waits for another process. */
ith_status ith_replace_file(ith_context *context, const char *path, ith_write_fn write, void *user);

#endif
