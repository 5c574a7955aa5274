/* SPDX-License-Identifier: Apache-2.0 */
/* Checks output files before a long computation begins, and writes small ones. */
#ifndef ITH_CLI_OUTPUT_NAME_H
#define ITH_CLI_OUTPUT_NAME_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Checks that a file can be written: a new or a regular file in a writable folder, or a character device (/dev/null)
 * that is no terminal. NULL passes. Prints errors and returns an exit status. */
int ith_cli_check_output(const char *path);

/* Writes a file by print(file, user): beside `path` first, then renamed, so that no half file is left. A device is
 * written to directly. Prints errors and returns an exit status. */
int ith_cli_replace_file(const char *path, void (*print)(FILE *file, void *user), void *user);

/* Finds two of `count` paths that mean the same file, at least the first of them among the first `outputs` paths: two
 * outputs, or an output and an input that it would replace. Paths may be NULL; files need not exist; devices such as
 * /dev/null count as different. *first < *second: their indices, -1 if there are none. Prints errors and returns an
 * exit status. */
int ith_cli_find_same(const char *const *paths, int64_t count, int64_t outputs, int64_t *first, int64_t *second);

/* Whether an existing file lies in a folder or in a folder inside it, by its own name or by the name behind links. NULL
 * is no file and no folder. */
bool ith_cli_is_inside(const char *path, const char *folder);
/* Whether a file, which need not exist, lies in this folder itself. */
bool ith_cli_is_in_folder(const char *path, const char *folder);

/* Checks that ith_cli_find_same finds no two paths. options[i]: the option that gave paths[i], for the message. Prints
 * errors and returns an exit status. */
int ith_cli_check_distinct(const char *const *paths, const char *const *options, int count, int outputs);

#endif
