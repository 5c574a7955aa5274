/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the errors of argp in a file in memory (parsing_streams.h). */
#include "parsing_streams.h"

#include "../../media/utf8.h"
#include "../cli.h"
#include "launcher_kind.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The sizes of buffers. */
enum {
    SENTENCE_BYTES = 4096, /* longer errors of argp are cut */
    COMMAND_BYTES = 64     /* more than the command takes at the beginning of an error */
};

static const char *parsed;            /* the command whose line is parsed; NULL: none */
static int saved[2] = {-1, -1};       /* copies of standard output and standard error; -1: the stream is as it was */
static int errors = -1;               /* the file in the place of standard error; -1: there is none */
static const char hint[] = "\nTry `"; /* which argp prints behind each error */

/* Copies the first error of the file, without the command at its beginning and the hint behind it. */
static void read_error(char *sentence, size_t bytes)
{
    char text[COMMAND_BYTES + SENTENCE_BYTES];
    const ssize_t length = errors < 0 ? 0 : pread(errors, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    char *end = strstr(text, hint);
    if (end)
        *end = '\0';
    const size_t head = strlen(parsed) + strlen(": ");
    const char *begin = strlen(text) > head ? text + head : text;
    snprintf(sentence, bytes, "%.*s", (int)ith_utf8_cut(begin, bytes - 1), begin);
}

void ith_parsing_give_back(char *sentence, size_t bytes)
{
    read_error(sentence, bytes);
    if (saved[0] >= 0)
        fflush(stdout); /* the help of this process goes nowhere */
    for (int i = 0; i < 2; i++)
        if (saved[i] >= 0) {
            dup2(saved[i], STDOUT_FILENO + i);
            close(saved[i]);
            saved[i] = -1;
        }
    if (errors >= 0)
        close(errors);
    errors = -1;
}

/* Runs when the process ends. */
static void show_error(void)
{
    char sentence[SENTENCE_BYTES];
    if (!parsed)
        return;
    ith_parsing_give_back(sentence, sizeof sentence);
    if (sentence[0])
        ith_cli_usage(parsed, "%s", sentence);
    else
        ith_launcher_let_first_print();
}

bool ith_parsing_begin(const char *command)
{
    static bool shows;
    if (!shows)
        shows = !atexit(show_error);
    parsed = command;
    errors = shows ? memfd_create("errors", MFD_CLOEXEC) : -1;
    const int nowhere = ith_launcher_process() ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    const int places[2] = {nowhere, errors};
    for (int i = 0; i < 2; i++) {
        saved[i] = places[i] < 0 ? -1 : fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, 0);
        if (saved[i] >= 0)
            dup2(places[i], STDOUT_FILENO + i);
    }
    if (nowhere >= 0)
        close(nowhere);
    return saved[1] >= 0;
}

void ith_parsing_end(void)
{
    parsed = NULL;
}
