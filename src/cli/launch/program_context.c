/* SPDX-License-Identifier: Apache-2.0 */
/* The library's context of a command (cli.h). */
#include "../cli.h"
#include "../option/complaint.h"
#include "progress.h"

#include <stdio.h>

/* Prints a line of the library's log on standard error (ith_context_options.log). Of several processes, the one that
 * leads prints it. */
static void log_line(void *user, ith_log_level level, const char *line)
{
    static const char *const words[] = {"error: ", "warning: ", "", ""}; /* indexed by ith_log_level */
    (void)user;
    if (!ith_error_leads())
        return;
    /* On a terminal the current line may hold a progress bar; "\r\033[K" erases it. */
    fprintf(stderr, "%sithaca: %s%s\n", ith_terminal_draws() ? "\r\033[K" : "", words[level], line);
}

int ith_cli_context(ith_cli_talk talk, ith_context **out)
{
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.log = log_line;
    options.log_level = talk == ITH_TALK_QUIET     ? ITH_LOG_ERROR
                        : talk == ITH_TALK_VERBOSE ? ITH_LOG_DEBUG
                                                   : ITH_LOG_WARNING;
    return ith_context_create(&options, out) ? ith_cli_error("%s", ith_context_error(NULL)) : ITH_EXIT_DONE;
}
