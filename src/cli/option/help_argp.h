/* SPDX-License-Identifier: Apache-2.0 */
/* --help, --usage and --version for argp. argp itself adds hidden options for its own tests to these three (--HANG,
 * --program-name). So parsers switch its options off with ARGP_NO_HELP, and use the ones declared here. */
#ifndef ITH_CLI_HELP_ARGP_H
#define ITH_CLI_HELP_ARGP_H

#include <argp.h>

/* The children of a parser: the three options. */
extern const struct argp_child ith_help_children[];

#endif
