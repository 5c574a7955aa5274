/* SPDX-License-Identifier: Apache-2.0 */
/* Opens regular files for reading. Pipes, devices and folders are refused at once, without waiting for a writer. */
#ifndef ITH_BASE_OPEN_FILE_H
#define ITH_BASE_OPEN_FILE_H

#include "context.h"

#include <sys/stat.h>

/* The kind of a file for a sentence: "a folder", "a pipe", "a socket", "a device" or "a file". */
const char *ith_file_kind(const struct stat *info);

/* *file: a descriptor for the caller to close, -1 on failure. *bytes: the size of the file. ITH_ERR_IO if the file
 * cannot be opened or is not a regular file. */
ith_status ith_open_file(ith_context *context, const char *path, int *file, int64_t *bytes);

#endif
