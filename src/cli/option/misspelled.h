/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a command line that look like options and are none. */
#ifndef ITH_CLI_MISSPELLED_H
#define ITH_CLI_MISSPELLED_H

#include "option.h"

#include <argp.h>
#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

enum { ITH_OPTION_NAMES_MAX = ITH_OPTIONS_MAX + 8 }; /* maximal number of options, with argp's own ones */

/* The options of a command as getopt reads them. */
typedef struct ith_option_names {
    struct option table[ITH_OPTION_NAMES_MAX + 1]; /* ends with a row of zeros */
    char letters[2 * ITH_OPTION_NAMES_MAX + 3];
} ith_option_names;

/* Lists the options of argp's rows, and --help, --usage and --version. */
void ith_option_names_list(const struct argp_option *rows, int count, ith_option_names *names);
/* The first word of the command line that stands for an option which does not exist; NULL if there is none, or if there
 * is no memory to look for it. */
const char *ith_option_names_unknown(const ith_option_names *names, int argc, char **argv);
/* Writes a sentence about a word that stands for no option, or for several. Returns whether it names the nearest
 * option. */
bool ith_option_names_explain(const ith_option_names *names, const char *word, char *sentence, size_t bytes);

#endif
