/* SPDX-License-Identifier: Apache-2.0 */
/* The standard streams of a process while argp reads its command line. argp and getopt print words of the user as they
 * are, with commands to a terminal. So their errors go to a file in memory, and are printed with ith_cli_usage. Of
 * processes that were started together, the first one alone prints its help. */
#ifndef ITH_CLI_PARSING_STREAMS_H
#define ITH_CLI_PARSING_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

/* To be called before argp_parse. If argp ends the process, it gets its streams back, and the error is printed; a
 * process that is not the first one waits until the first one has printed. command: "ithaca generate", which begins
 * argp's errors; it lives as long as the process. Returns whether errors are kept; there may be no memory for them. */
bool ith_parsing_begin(const char *command);
/* Gives the streams back. Writes the first error that was kept, without the command; "" if there is none. */
void ith_parsing_give_back(char *sentence, size_t bytes);
/* From here on the process may end without a pause. */
void ith_parsing_end(void);

#endif
