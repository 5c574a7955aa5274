/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files to write, looked at before work begins. */
#ifndef ITH_CLI_OUTPUT_NAME_H
#define ITH_CLI_OUTPUT_NAME_H

/* Whether a file may be written under this name at the end: a new or a regular file in a folder that can be written,
 * or a device (/dev/null) that is no terminal. NULL is no name and passes. Prints what is wrong and returns an exit
 * status. */
int ith_cli_check_output(const char *path);

/* Whether no two of the names (some may be NULL) mean the same file. Prints which do and returns an exit status. */
int ith_cli_check_distinct(const char *const *paths, const char *const *options, int count);

#endif
