/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, flags and quoted text (text_value.h). */
#include "text_value.h"

#include "../../media/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Whether text holds allowed characters only. This excludes spaces, '+', hexadecimal numbers and infinity, which strtod
 * and strtoll accept. */
static bool has_only(const char *text, const char *allowed)
{
    return *text && strspn(text, allowed) == strlen(text);
}

bool ith_text_whole(const char *text, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    const int64_t whole = strtoll(text, &end, 10);
    if (!has_only(text, "-0123456789") || *end || errno)
        return false;
    *value = whole;
    return true;
}

bool ith_text_seed(const char *text, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    const uint64_t seed = strtoull(text, &end, 10);
    if (!has_only(text, "0123456789") || *end || errno)
        return false;
    *value = seed;
    return true;
}

bool ith_text_number(const char *text, double *value)
{
    char *end = NULL;
    const double number = strtod(text, &end);
    if (!has_only(text, "-+.eE0123456789") || *text == '+' || *end || !isfinite(number))
        return false;
    *value = number;
    return true;
}

bool ith_text_pair(const char *text, double value[2])
{
    char first[64];
    double pair[2];
    const char *comma = strchr(text, ',');
    const size_t length = comma ? (size_t)(comma - text) : strlen(text);
    if (length >= sizeof first)
        return false;
    snprintf(first, sizeof first, "%.*s", (int)length, text);
    if (!ith_text_number(first, &pair[0]) || !ith_text_number(comma ? comma + 1 : text, &pair[1]))
        return false;
    memcpy(value, pair, sizeof pair);
    return true;
}

bool ith_text_flag(const char *text, bool *value)
{
    const bool is_true = !strcmp(text, "true");
    if (!is_true && strcmp(text, "false"))
        return false;
    *value = is_true;
    return true;
}

bool ith_text_ends_in(const char *name, const char *ending)
{
    const size_t length = strlen(name), end = strlen(ending);
    return length >= end && !strcasecmp(name + length - end, ending);
}

bool ith_text_is_among(const char *text, const char *const *list)
{
    while (*list && strcmp(text, *list) != 0)
        list++;
    return *list;
}

void ith_text_of_number(double value, char text[40])
{
    int digits = 6;
    do
        snprintf(text, 40, "%.*g", digits, value);
    while (strtod(text, NULL) != value && ++digits <= 17);
}

void ith_text_print_number(FILE *to, double value)
{
    char text[40];
    ith_text_of_number(value, text);
    fputs(text, to);
}

/* The number of bytes of the UTF-8 character at `text` that YAML takes for the end of a line (U+0085, U+2028, U+2029);
 * 0 for any other character. */
static int line_break(const char *text)
{
    if (!strncmp(text, "\xc2\x85", 2))
        return 2;
    return !strncmp(text, "\xe2\x80\xa8", 3) || !strncmp(text, "\xe2\x80\xa9", 3) ? 3 : 0;
}

bool ith_text_is_utf8(const char *text)
{
    for (size_t bytes; *text; text += bytes)
        if (!(bytes = ith_utf8_bytes(text)))
            return false;
    return true;
}

/* The code of the character at `c` if YAML does not allow it to stand for itself: C1, U+FEFF, U+FFFE, U+FFFF; otherwise
 * 0. */
static unsigned hidden_code(const unsigned char *c)
{
    if (c[0] == 0xc2 && c[1] < 0xa0)
        return c[1];
    if (c[0] == 0xef && ((c[1] == 0xbb && c[2] == 0xbf) || (c[1] == 0xbf && c[2] >= 0xbe)))
        return 0xf000u | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
    return 0;
}

/* Prints the first character of a text as it stands between double quotes in YAML, and returns its bytes. */
static int print_escaped(FILE *to, const char *text)
{
    const int breaks = line_break(text), bytes = (int)ith_utf8_bytes(text);
    const unsigned char byte = (unsigned char)*text;
    const unsigned hidden = bytes > 1 ? hidden_code((const unsigned char *)text) : 0;
    if (breaks == 2)
        fputs("\\N", to);
    else if (breaks == 3)
        fprintf(to, "\\%c", (unsigned char)text[2] == 0xa8 ? 'L' : 'P');
    else if (byte == '"' || byte == '\\')
        fprintf(to, "\\%c", *text);
    else if (byte < 0x20 || byte == 0x7f)
        fprintf(to, "\\x%02x", byte);
    else if (hidden)
        fprintf(to, "\\u%04x", hidden);
    else
        fprintf(to, "%.*s", bytes ? bytes : 1, bytes ? text : "?");
    return bytes ? bytes : 1;
}

void ith_text_print_quoted(FILE *to, const char *text)
{
    fputc('"', to);
    while (*text)
        text += print_escaped(to, text);
    fputc('"', to);
}

void ith_text_clean(char *text)
{
    bool shown;
    for (size_t bytes; *text; text += bytes) {
        bytes = ith_shown_bytes(text, &shown);
        if (!shown)
            memset(text, '?', bytes);
    }
}

void ith_text_print_option(FILE *to, const char *name, const char *value)
{
    fprintf(to, " --%s '", name);
    for (const char *c = value; *c; c++)
        if (*c == '\'')
            fputs("'\\''", to);
        else
            fputc(*c, to);
    fputc('\'', to);
}
