/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the subcommands share: exit statuses, messages, the context, clocks. */
#ifndef ITH_CLI_CLI_H
#define ITH_CLI_CLI_H

#include <ithaca/ithaca.h>

/* Exit statuses of the program: success, a failure, and a command line that makes no sense. */
enum { ITH_EXIT_DONE = 0, ITH_EXIT_FAILED = 1, ITH_EXIT_USAGE = 2 };

/* The subcommands of the program. argv[0] is "ithaca NAME". Each returns an exit status. */
int ith_cli_generate(int argc, char **argv);
int ith_cli_attend(int argc, char **argv);
int ith_cli_verify(int argc, char **argv);
int ith_cli_bench(int argc, char **argv);
int ith_cli_plan(int argc, char **argv);
int ith_cli_tune(int argc, char **argv);
int ith_cli_info(int argc, char **argv);
int ith_cli_tokenize(int argc, char **argv);

/* Prints "ithaca: SENTENCE" on standard error and returns ITH_EXIT_FAILED. In a process that is one of several the
 * sentence may be held back (complaint.h). */
int ith_cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints "COMMAND: SENTENCE" with a hint at --help and returns ITH_EXIT_USAGE. command: such as "ithaca generate". Of
 * processes that were started together, all of which have this error, the first one prints it. */
int ith_cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The lines of the library's log that are printed: warnings and errors, errors only, or all. */
typedef enum ith_cli_talk { ITH_TALK_NORMAL = 0, ITH_TALK_QUIET, ITH_TALK_VERBOSE } ith_cli_talk;
/* Makes a context whose log goes to standard error. Prints errors and returns an exit status. */
int ith_cli_context(ith_cli_talk talk, ith_context **out);

/* The ending of a noun after a count: "" after 1, otherwise "s". */
static inline const char *ith_cli_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static inline double ith_cli_megabytes(int64_t bytes)
{
    return (double)bytes / 1e6;
}

/* Seconds on a monotonic clock, from an arbitrary start. */
double ith_cli_seconds(void);
/* The largest resident memory of this process so far, in bytes. */
int64_t ith_cli_resident_bytes(void);

#endif
