/* SPDX-License-Identifier: Apache-2.0 */
/* --help, --usage and --version for argp. argp has them too, with options for its own tests: it gets ARGP_NO_HELP. */
#ifndef ITH_CLI_HELP_ARGP_H
#define ITH_CLI_HELP_ARGP_H

#include <argp.h>

/* The children of a parser: the three options. */
extern const struct argp_child ith_help_children[];

#endif
