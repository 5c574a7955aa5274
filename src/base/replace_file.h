/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear complete or not at all: they are written under a temporary name in the same folder and then
 * renamed. */
#ifndef ITH_BASE_REPLACE_FILE_H
#define ITH_BASE_REPLACE_FILE_H

#include "context.h"

#include <stdio.h>

/* A function that writes the contents of a file. It may ignore write errors, because ith_replace_file checks the
 * stream. It returns any other failure, with an error sentence in the context, and ith_replace_file returns it too. */
typedef ith_status (*ith_write_fn)(FILE *file, void *user);

/* Replaces the file at `path` by the output of `write`. On failure (ITH_ERR_IO, ITH_ERR_MEMORY, or the status of
 * `write`) an existing file stays unchanged. If `path` is a symbolic link, the link stays, and the file behind it is
 * replaced, or created if it does not exist. The new file has the permissions of the old one; a write-protected file is
 * refused. A character device (/dev/null) is written to directly. A folder, a pipe, a socket, a disk or a terminal is
 * refused; the call never waits for another process. */
ith_status ith_replace_file(ith_context *context, const char *path, ith_write_fn write, void *user);

/* Checks that a file at `path` can be created or replaced now, with the errors of ith_replace_file. It leaves no file
 * behind. A device is not opened. */
ith_status ith_replace_check(ith_context *context, const char *path);

#endif
