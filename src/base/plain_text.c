/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and letters as in the locale "C" (plain_text.h). The C library always has this locale: newlocale
 * takes no memory, and there is nothing to free. */
#include "plain_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

locale_t ith_plain_begin(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

void ith_plain_end(locale_t before)
{
    uselocale(before);
}

void ith_number_print(double value, int digits, char *text, size_t bytes)
{
    const locale_t before = ith_plain_begin();
    snprintf(text, bytes, "%.*g", digits, value);
    ith_plain_end(before);
}

double ith_number_read(const char *text, char **end)
{
    const locale_t before = ith_plain_begin();
    const double value = strtod(text, end);
    ith_plain_end(before);
    return value;
}

static char small(char letter)
{
    return ith_is_capital(letter) ? (char)(letter - 'A' + 'a') : letter;
}

bool ith_begins_with(const char *text, const char *begin)
{
    while (*begin && small(*text) == *begin)
        text++, begin++;
    return !*begin;
}

bool ith_has_part(const char *text, const char *part)
{
    while (*text && !ith_begins_with(text, part))
        text++;
    return ith_begins_with(text, part);
}

bool ith_is_listed(const char *list, char separator, const char *word)
{
    const size_t length = strlen(word);
    while (strncmp(list, word, length) || (list[length] && list[length] != separator)) {
        list = strchr(list, separator);
        if (!list)
            return false;
        list++;
    }
    return true;
}
