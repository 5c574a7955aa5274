/* SPDX-License-Identifier: Apache-2.0 */
/* Regular files opened for reading; anything else is refused and never waited for. */
#ifndef ITH_BASE_OPEN_FILE_H
#define ITH_BASE_OPEN_FILE_H

#include "context.h"

#include <sys/stat.h>

/* "a folder", "a pipe", "a socket", "a device"; "a file" for a regular file. */
const char *ith_file_kind(const struct stat *info);

/* *file: a descriptor for the caller to close, -1 on failure. *bytes: the size of the file. ITH_ERR_IO if the file
 * cannot be opened or is not a regular file. */
ith_status ith_open_file(ith_context *context, const char *path, int *file, int64_t *bytes);

#endif
