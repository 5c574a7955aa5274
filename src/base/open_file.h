/* SPDX-License-Identifier: Apache-2.0 */
/* Opens regular files for reading. Pipes, devices and folders are refused at once, without waiting for a writer. */
#ifndef ITH_BASE_OPEN_FILE_H
#define ITH_BASE_OPEN_FILE_H

#include "context.h"

#include <sys/stat.h>

/* The kind of a file, as a noun for error sentences: "a folder", "a pipe", "a socket", "a device" or "a file". */
const char *ith_file_kind(const struct stat *info);

/* Opens a file. *file becomes a descriptor, which the caller closes, or -1 on failure; *bytes becomes the size of the
 * file. ITH_ERR_IO if the file cannot be opened or is not a regular file. */
ith_status ith_open_file(ith_context *context, const char *path, int *file, int64_t *bytes);

#endif
