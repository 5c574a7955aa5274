/* SPDX-License-Identifier: Apache-2.0 */
/* Character references of HTML 5:
 *
 *     &name;   &name   &#decimal;   &#decimal   &#xhex;   &#xhex
 *
 * https://html.spec.whatwg.org/multipage/parsing.html#character-reference-state, as Python's html.unescape reads it. */
#include "html_unescape.h"

#include "html_entities.h"

#include <string.h>

#define LONGEST_NAME 32       /* the longest name that html.unescape accepts, without ';' */
#define LONGEST_PLAIN_NAME 24 /* the longest name that ftfy's unescape_html accepts, without ';' */

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower(uint32_t c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_upper(uint32_t c)
{
    return c >= 'A' && c <= 'Z';
}

/* The value of a hexadecimal digit; -1 for any other character. */
static int hex_value(uint32_t c)
{
    if (is_digit(c))
        return (int)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (int)(c - 'a') + 10;
    return c >= 'A' && c <= 'F' ? (int)(c - 'A') + 10 : -1;
}

/* Finds the value of a name in an ordered table by binary search; NULL if the table lacks it. */
static const char *find(const ith_html_entity *table, int count, const char *name)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(name, table[middle].name);
        if (order == 0)
            return table[middle].value;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Finds the longest prefix of `name`, of at least two characters, that is a reference. Returns its value, or NULL if
 * there is none; *used is the length of the prefix. */
static const char *find_longest(const char *name, int64_t length, int64_t *used)
{
    char beginning[LONGEST_NAME + 2];
    memcpy(beginning, name, (size_t)length);
    for (int64_t n = length; n >= 2; n--) {
        beginning[n] = '\0';
        const char *value = find(ith_html_entities, ith_html_entities_count, beginning);
        if (value) {
            *used = n;
            return value;
        }
    }
    return NULL;
}

/* A function that reads the reference after an '&' and appends its value. It sets *used to the number of characters
 * that it has read, or to 0 if there is no reference. */
typedef ith_status (*reference_fn)(ith_context *context, const uint32_t *text, int64_t left, ith_codepoints *out,
                                   int64_t *used);

/* Copies the text, and replaces every reference in it by its value. */
static ith_status replace_references(ith_context *context, const ith_codepoints *text, reference_fn replace,
                                     ith_codepoints *out)
{
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < text->count && !status;) {
        int64_t used = 0;
        if (text->at[i] == '&')
            status = replace(context, text->at + i + 1, text->count - i - 1, out, &used);
        if (!status && used == 0)
            status = ith_codepoints_push(context, out, text->at[i]);
        i += 1 + used;
    }
    return status;
}

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

uint32_t ith_windows_1252(uint32_t codepoint)
{
    static const uint16_t characters[32] = {0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021,
                                            0x2c6,  0x2030, 0x160,  0x2039, 0x152,  0x8d,   0x17d,  0x8f,
                                            0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                            0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};
    return codepoint >= 0x80 && codepoint <= 0x9f ? characters[codepoint - 0x80] : codepoint;
}

/* Whether html.unescape drops the character with this number: control characters and non-characters. */
static bool is_dropped(uint32_t number)
{
    return (number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r') || number == 0x7f ||
           (number >= 0xfdd0 && number <= 0xfdef) || (number & 0xfffe) == 0xfffe;
}

/* Reads "#123;" or "#x7B;" from the next `left` characters. Returns the number of characters read, or 0 if there is no
 * number. */
static int64_t read_number(const uint32_t *text, int64_t left, uint32_t *number)
{
    if (left < 2 || text[0] != '#')
        return 0;
    int base = text[1] == 'x' || text[1] == 'X' ? 16 : 10;
    int64_t first = base == 16 ? 2 : 1, i = first;
    *number = 0;
    for (; i < left; i++) {
        int digit = hex_value(text[i]);
        if (digit < 0 || digit >= base)
            break;
        if (*number <= 0x10ffff) /* a number that exceeds Unicode takes no more digits, which could overflow */
            *number = *number * (uint32_t)base + (uint32_t)digit;
    }
    if (i == first)
        return 0;
    return i < left && text[i] == ';' ? i + 1 : i;
}

/* Appends the character of a numeric reference. Zero, surrogates and numbers beyond Unicode become U+FFFD. */
static ith_status push_number(ith_context *context, ith_codepoints *out, uint32_t number)
{
    if (number == 0 || (number >= 0xd800 && number <= 0xdfff) || number > 0x10ffff)
        return ith_codepoints_push(context, out, 0xfffd);
    return is_dropped(number) ? ITH_OK : ith_codepoints_push(context, out, ith_windows_1252(number));
}

/* ---- html.unescape --------------------------------------------------------------------------------------------- */

/* Copies the characters behind '&' that may form a name, including ';'. A character that occurs in no name becomes '?'.
 * Returns the length. */
static int64_t read_name(const uint32_t *text, int64_t left, char *name)
{
    int64_t length = 0;
    for (; length < left && length < LONGEST_NAME; length++) {
        uint32_t c = text[length];
        if (c == '\t' || c == '\n' || c == '\f' || c == ' ' || c == '<' || c == '&' || c == '#' || c == ';')
            break;
        name[length] = c < 0x80 ? (char)c : '?';
    }
    if (length > 0 && length < left && text[length] == ';')
        name[length++] = ';';
    name[length] = '\0';
    return length;
}

static ith_status unescape_one(ith_context *context, const uint32_t *text, int64_t left, ith_codepoints *out,
                               int64_t *used)
{
    uint32_t number;
    *used = read_number(text, left, &number);
    if (*used > 0)
        return push_number(context, out, number);
    char name[LONGEST_NAME + 2];
    int64_t length = read_name(text, left, name);
    const char *value = find_longest(name, length, used);
    return value ? ith_codepoints_append_utf8(context, out, value) : ITH_OK;
}

ith_status ith_html_unescape(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    return replace_references(context, text, unescape_one, out);
}

/* ---- unescape_html --------------------------------------------------------------------------------------------- */

/* Finds the value of a name in capitals that HTML lacks, such as "EACUTE;": the upper-case form of the value of
 * "eacute;". Returns NULL for any other name. */
static const char *find_in_capitals(const char *name, int64_t length)
{
    char lower[LONGEST_NAME + 2];
    for (int64_t i = 0; i <= length; i++) {
        if (is_lower((unsigned char)name[i]))
            return NULL;
        lower[i] = (char)(is_upper((unsigned char)name[i]) ? name[i] + ('a' - 'A') : name[i]);
    }
    int64_t used;
    const char *value = find(ith_html_entities, ith_html_entities_count, lower);
    if (!value || find_longest(name, length, &used))
        return NULL;
    const char *capitals = find(ith_html_capitals, ith_html_capitals_count, value);
    return capitals ? capitals : value;
}

/* Returns the length of "name;" or "#name;" after an '&', with 1 to 24 letters and digits, or 0 if the text is
 * something else. */
static int64_t match_plain(const uint32_t *text, int64_t left)
{
    int64_t first = left > 0 && text[0] == '#', i = first;
    while (i < left && i - first <= LONGEST_PLAIN_NAME && (is_digit(text[i]) || is_lower(text[i]) || is_upper(text[i])))
        i++;
    bool fits = i > first && i - first <= LONGEST_PLAIN_NAME && i < left && text[i] == ';';
    return fits ? i + 1 : 0;
}

static ith_status unescape_one_plain(ith_context *context, const uint32_t *text, int64_t left, ith_codepoints *out,
                                     int64_t *used)
{
    *used = 0;
    int64_t length = match_plain(text, left);
    if (length == 0)
        return ITH_OK;
    if (text[0] == '#') {
        uint32_t number;
        if (read_number(text, length, &number) != length ||
            number == ';') /* ftfy leaves a reference that stands for ';' as it is */
            return ITH_OK;
        *used = length;
        return push_number(context, out, number);
    }
    char name[LONGEST_NAME + 2];
    read_name(text, length, name);
    const char *value = find(ith_html_entities, ith_html_entities_count, name);
    if (!value)
        value = find_in_capitals(name, length);
    if (!value)
        return ITH_OK;
    *used = length;
    return ith_codepoints_append_utf8(context, out, value);
}

ith_status ith_html_unescape_plain(ith_context *context, const ith_codepoints *text, ith_codepoints *out)
{
    return replace_references(context, text, unescape_one_plain, out);
}
