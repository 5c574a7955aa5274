/* SPDX-License-Identifier: Apache-2.0 */
/* Prints errors on standard error, or holds them back (complaint.h). */
#include "complaint.h"

#include "../cli.h"
#include "../support/text_value.h"
#include "launcher_kind.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#define ORIGIN_BYTES 1024

static bool holding, follows; /* whether errors are held; whether another process speaks for the run */
static char held[1024];
static const ith_options *explained; /* the options whose files and lines errors name; or NULL */

void ith_error_explain(const ith_options *options)
{
    explained = options;
}

void ith_error_hold(bool leads)
{
    holding = true;
    follows = !leads;
}

void ith_error_release(void)
{
    holding = false;
    held[0] = '\0';
}

const char *ith_error_held(void)
{
    return held;
}

void ith_error_say(void)
{
    if (held[0])
        ith_error_print("%s", held);
    held[0] = '\0';
}

bool ith_error_leads(void)
{
    return !follows;
}

/* Prints "HEAD: SENTENCE", with options named as on the command line, and the files and lines that set them. It is one
 * write, so that lines of several processes do not mix. */
static void print_line(const char *head, const char *sentence)
{
    char origins[ORIGIN_BYTES] = "", said[2 * PATH_MAX]; /* no allocation, which could fail */
    if (explained) {
        ith_options_spell(explained, sentence, said, sizeof said);
        ith_options_origins(explained, said, origins, sizeof origins);
    } else {
        snprintf(said, sizeof said, "%s", sentence);
    }
    ith_text_clean(said);
    ith_text_clean(origins);
    fprintf(stderr, "%s: %s%s\n", head, said, origins);
}

/* Prints "HEAD: SENTENCE", or keeps the sentence if it is the first one that is held. */
static void speak(const char *head, const char *format, va_list arguments)
{
    if (holding) {
        if (!held[0])
            vsnprintf(held, sizeof held, format, arguments);
        return;
    }
    char sentence[2 * PATH_MAX]; /* no allocation, which could fail */
    vsnprintf(sentence, sizeof sentence, format, arguments);
    print_line(head, sentence);
}

int ith_cli_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    speak("ithaca", format, arguments);
    va_end(arguments);
    return ITH_EXIT_FAILED;
}

int ith_cli_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (holding || ith_launcher_process() == 0)
        speak(command, format, arguments);
    va_end(arguments);
    if (!holding && ith_launcher_process() == 0)
        fprintf(stderr, "Try '%s --help' for more information.\n", command);
    else if (!holding)
        ith_launcher_let_first_print();
    return ITH_EXIT_USAGE;
}

void ith_error_print(const char *format, ...)
{
    char line[1280];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    print_line("ithaca", line);
}
