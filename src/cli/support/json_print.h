/* SPDX-License-Identifier: Apache-2.0 */
/* Makes texts for reports, and prints reports as JSON. */
#ifndef ITH_CLI_JSON_PRINT_H
#define ITH_CLI_JSON_PRINT_H

#include <jansson.h>

/* A text, such as the name of a file, in which '?' stands for each byte that is no UTF-8. NULL if there is no memory.
 */
json_t *ith_cli_json_text(const char *text);

/* Prints a value on standard output. value: NULL if there was no memory for it. what: "the report", for the error. If
 * standard output takes no more, main.c says so at the end. layout: flags of Jansson. Returns an exit status. */
int ith_cli_json_dump(const json_t *value, const char *what, size_t layout);

/* Prints `all` in the same way, with a line break behind it, and releases it. */
int ith_cli_json_print(json_t *all, const char *what, size_t layout);

#endif
