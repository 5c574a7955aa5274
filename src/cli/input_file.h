/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the small text files that the program reads. */
#ifndef ITH_CLI_INPUT_FILE_H
#define ITH_CLI_INPUT_FILE_H

#include <stdio.h>

/* Opens a regular file for reading, and never waits as opening a pipe would. Returns NULL with the reason in errno,
 * which is EINVAL for another kind of file. */
FILE *ith_input_open(const char *path);
/* The reason in words for which ith_input_open has just failed. */
const char *ith_input_fault(void);

#endif
