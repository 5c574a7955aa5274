/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and letters of texts that programs read: files, names, values that ranks compare. They are the same in every
 * locale, also where the program that uses the library has set another one (decimal comma, Turkish small I). Sentences
 * for people may follow the locale. */
#ifndef ITH_BASE_PLAIN_TEXT_H
#define ITH_BASE_PLAIN_TEXT_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

/* Gives the calling thread, and no other, the locale "C", and returns its locale before, for ith_plain_end. Calls of
 * another library that reads or writes numbers stand between the two. */
locale_t ith_plain_begin(void);
void ith_plain_end(locale_t before);

/* Writes a number with `digits` significant digits, and a point if it has a fraction ("%.*g"), cut to `bytes`. */
void ith_number_print(double value, int digits, char *text, size_t bytes);
/* Reads the number at the beginning of a text, as strtod does, with a point. *end becomes the first character behind
 * it. Sets errno to ERANGE if the number is too large or too small. */
double ith_number_read(const char *text, char **end);

static inline bool ith_is_small_letter(char letter)
{
    return letter >= 'a' && letter <= 'z';
}

static inline bool ith_is_capital(char letter)
{
    return letter >= 'A' && letter <= 'Z';
}

/* Whether `text` begins with `begin`, which is in small letters, if capitals in `text` count as small letters. */
bool ith_begins_with(const char *text, const char *begin);
/* Whether `part`, which is in small letters, lies anywhere in `text`, in the same sense. */
bool ith_has_part(const char *text, const char *part);
/* Whether `word` is one of the words of a list, which are separated by `separator`. */
bool ith_is_listed(const char *list, char separator, const char *word);

#endif
