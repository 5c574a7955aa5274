/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the small text files that the program reads. */
#ifndef ITH_CLI_INPUT_FILE_H
#define ITH_CLI_INPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

#define ITH_INPUT_LINE_BYTES (1 << 20) /* the longest line that is read */

/* Opens a regular file for reading, and never waits as opening a pipe would. Returns NULL with the reason in errno,
 * which is EINVAL for another kind of file. */
FILE *ith_input_open(const char *path);
/* As ith_input_open, and also opens a pipe, for whose writer it waits, and standard input for "-". *once: whether it is
 * one of these two, which can be read only once. */
FILE *ith_input_open_once(const char *path, bool *once);
/* The reason in words for which one of these functions has just failed. */
const char *ith_input_fault(void);
/* Reads the rest of the file `path`, of at most `most` bytes. The caller frees the text. Returns NULL after printing
 * the error. */
char *ith_input_text(FILE *file, const char *path, size_t most, size_t *bytes);
/* Reads a line without its newline into `line`, which has room for ITH_INPUT_LINE_BYTES bytes and a 0. Returns false at
 * the end of the file. *fault becomes NULL, or the reason why the line is no text that can be read. */
bool ith_input_line(FILE *file, char *line, const char **fault);

#endif
