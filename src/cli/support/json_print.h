/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the values of reports in JSON, and prints reports. */
#ifndef ITH_CLI_JSON_PRINT_H
#define ITH_CLI_JSON_PRINT_H

#include <jansson.h>

/* A text, such as the name of a file, in which '?' stands for each byte that is no UTF-8. NULL if there is no memory.
 */
json_t *ith_cli_json_text(const char *text);
/* A number; null for infinity and NaN, which JSON does not have. */
json_t *ith_cli_json_number(double value);
/* An object {"name", "about"} of two such texts. */
json_t *ith_cli_json_about(const char *name, const char *about);

/* Prints a value on standard output. value: NULL if there was no memory for it. what: "the report", for the error. If
 * standard output takes no more, main.c says so at the end. layout: flags of Jansson. Returns an exit status. */
int ith_cli_json_dump(const json_t *value, const char *what, size_t layout);

/* Prints `all` in the same way, with a line break behind it, and releases it. */
int ith_cli_json_print(json_t *all, const char *what, size_t layout);

#endif
