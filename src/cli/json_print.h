/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a report as JSON. */
#ifndef ITH_CLI_JSON_PRINT_H
#define ITH_CLI_JSON_PRINT_H

#include <jansson.h>

/* Prints `all` on standard output and releases it. all: NULL if there was no memory for it. what: "the report", for the
 * error. layout: flags of Jansson. Returns an exit status. */
int ith_cli_json_print(json_t *all, const char *what, size_t layout);

#endif
