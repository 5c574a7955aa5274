/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --prompts: one video a line, as a prompt or as a JSON object of options. */
#ifndef ITH_CLI_BATCH_FILE_H
#define ITH_CLI_BATCH_FILE_H

#include "../option/option.h"

#define ITH_BATCH_MOST_VIDEOS 10000 /* of one command: the settings of all of them are held in memory */

struct json_t;

/* A line of the file that is not empty. */
typedef struct ith_batch_line {
    int64_t number; /* of the line in the file, from 1 on */
    char *prompt;   /* the line as a prompt; NULL: `object` has the options */
    struct json_t *object;
} ith_batch_line;

/* Reads all lines. Empty lines are left out; a line that begins with '{' is a JSON object. Prints errors and returns an
 * exit status. path: a file; a pipe, or "-" for standard input, if this process is `alone` in its run. The caller frees
 * the lines with ith_batch_lines_free, also after a failure. */
int ith_batch_lines_read(const char *path, bool alone, ith_batch_line **lines, int64_t *count);
void ith_batch_lines_free(ith_batch_line *lines, int64_t count);

/* Sets the options of one line as if the command line had them. Options that do not concern one video alone are
 * refused. Prints errors with the file and the line, and returns an exit status. */
int ith_batch_line_apply(const ith_batch_line *line, const char *path, ith_options *options);
/* Whether the line itself sets an option. */
bool ith_batch_line_sets(const ith_batch_line *line, const char *name);

#endif
