/* SPDX-License-Identifier: Apache-2.0 */
/* Parses --help, --usage and --version (help_argp.h). */
#include "help_argp.h"

#include <stddef.h>
#include <stdlib.h>

enum { KEY_HELP = '?', KEY_VERSION = 'V', KEY_USAGE = 0x10000 };

/* Prints and ends the process here, because argp does not end it with ARGP_NO_EXIT. */
static error_t parse(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    switch (key) {
    case KEY_HELP: argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP); exit(EXIT_SUCCESS);
    case KEY_USAGE: argp_state_help(state, state->out_stream, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK); exit(EXIT_SUCCESS);
    case KEY_VERSION: argp_program_version_hook(state->out_stream, state); exit(EXIT_SUCCESS);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option rows[] = {{"help", KEY_HELP, NULL, 0, "Give this help list", -1},
                                          {"usage", KEY_USAGE, NULL, 0, "Give a short usage message", 0},
                                          {"version", KEY_VERSION, NULL, 0, "Print program version", -1},
                                          {0}};
static const struct argp parser = {.options = rows, .parser = parse};
const struct argp_child ith_help_children[] = {{&parser, 0, NULL, 0}, {0}};
