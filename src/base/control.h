/* SPDX-License-Identifier: Apache-2.0 */
/* Characters of UTF-8, and bytes that no sentence and no line of the log has: control characters, which are C0 (below
 * 0x20), DEL (0x7f) and C1 (0xc2 0x80 to 0xc2 0x9f in UTF-8), and bytes that are no UTF-8, which a terminal may take
 * for C1. */
#ifndef ITH_BASE_CONTROL_H
#define ITH_BASE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether a byte continues a character of UTF-8. A text may have more than ITH_UTF8_CONTINUING of them in a row, which
 * are then no UTF-8. */
static inline bool ith_utf8_continues(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

enum { ITH_UTF8_CONTINUING = 3 }; /* the most bytes that continue one character */

/* The bytes of the UTF-8 character at p in a string (RFC 3629); 0 if there is none. */
static inline size_t ith_utf8_bytes(const char *p)
{
    const unsigned char *c = (const unsigned char *)p;
    const size_t bytes = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < bytes; i++)
        if (!ith_utf8_continues(p[i]))
            return 0;
    const bool is_long = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);   /* fewer bytes would do */
    const bool is_none = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90); /* not in Unicode */
    return is_long || is_none ? 0 : bytes;
}

/* The bytes of the longest beginning of a string that has at most `most` bytes and does not end within a character. */
static inline size_t ith_utf8_cut(const char *text, size_t most)
{
    size_t bytes = strnlen(text, most);
    for (int i = 0; i < ITH_UTF8_CONTINUING && bytes && ith_utf8_continues(text[bytes]); i++)
        bytes--;
    return bytes;
}

/* The bytes of the character at p, which is not the end of the string. *shown: whether a sentence may have it; '?'
 * stands for others. */
static inline size_t ith_shown_bytes(const char *p, bool *shown)
{
    const unsigned char *c = (const unsigned char *)p;
    const size_t bytes = ith_utf8_bytes(p);
    *shown = bytes && c[0] >= 0x20 && c[0] != 0x7f && !(c[0] == 0xc2 && c[1] < 0xa0);
    return bytes ? bytes : 1;
}

/* Replaces the characters that no sentence has by '?'. */
static inline void ith_replace_controls(char *text)
{
    char *to = text;
    for (const char *p = text; *p;) {
        bool shown;
        size_t bytes = ith_shown_bytes(p, &shown);
        for (size_t i = 0; shown && i < bytes; i++)
            *to++ = p[i];
        if (!shown)
            *to++ = '?';
        p += bytes;
    }
    *to = '\0';
}

#endif
