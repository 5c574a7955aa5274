/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text, for options and YAML files. Parsing is strict: all of the text must be the value. For any other
 * text, a function that parses returns false and leaves the value as it is. */
#ifndef ITH_CLI_TEXT_VALUE_H
#define ITH_CLI_TEXT_VALUE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Parses a decimal integer of 64 bits. */
bool ith_text_whole(const char *text, int64_t *value);
/* Parses an integer from 0 to 2^64 - 1. */
bool ith_text_seed(const char *text, uint64_t *value);
/* Parses a finite decimal number. */
bool ith_text_number(const char *text, double *value);
/* Parses two numbers "a,b"; a single number "a" counts for both. */
bool ith_text_pair(const char *text, double value[2]);
/* Parses "true" or "false". */
bool ith_text_flag(const char *text, bool *value);

/* Whether the name of a file ends in `ending`, such as ".gif", in small letters or capitals. */
bool ith_text_ends_in(const char *name, const char *ending);
/* Whether a text is one of a list, which ends with NULL. */
bool ith_text_is_among(const char *text, const char *const *list);

/* Writes a number with the fewest digits, six or more, that give the same number again. */
void ith_text_of_number(double value, char text[40]);
/* Prints such a number. */
void ith_text_print_number(FILE *to, double value);
/* Whether all of a text is UTF-8. */
bool ith_text_is_utf8(const char *text);
/* Prints a text in double quotes, as YAML has it; '?' stands for a byte that is no UTF-8. */
void ith_text_print_quoted(FILE *to, const char *text);
/* Replaces each byte of a control character, and each that is no UTF-8, by '?'. Names of files and names in files may
 * have such bytes, which end a line or are commands to a terminal. */
void ith_text_clean(char *text);
/* Prints " --NAME 'VALUE'" as a shell needs it. */
void ith_text_print_option(FILE *to, const char *name, const char *value);

#endif
