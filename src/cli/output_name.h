/* SPDX-License-Identifier: Apache-2.0 */
/* Checks output files before a long computation begins, and writes small ones. */
#ifndef ITH_CLI_OUTPUT_NAME_H
#define ITH_CLI_OUTPUT_NAME_H

#include <stdio.h>

/* Checks that a file can be written: a new or a regular file in a writable folder, or a character device (/dev/null)
 * that is no terminal. NULL passes. Prints errors and returns an exit status. */
int ith_cli_check_output(const char *path);

/* Writes a file by print(file, user): beside `path` first, then renamed, so that no half file is left. A device is
 * written to directly. Prints errors and returns an exit status. */
int ith_cli_replace_file(const char *path, void (*print)(FILE *file, void *user), void *user);

/* Checks that no two paths, some of which may be NULL, mean the same file. options[i]: the option that gave paths[i],
 * for the message. Prints errors and returns an exit status. */
int ith_cli_check_distinct(const char *const *paths, const char *const *options, int count);

#endif
