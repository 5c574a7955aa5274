/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces control characters in text from files. They are C0 (below 0x20), DEL (0x7f) and C1 (0xc2 0x80 to 0xc2 0x9f
 * in UTF-8). */
#include "quote.h"

#include <string.h>

/* Returns the number of bytes of the character at p if it is a control character (C0, DEL, or C1 in UTF-8), otherwise
 * 0. */
static size_t control_bytes(const unsigned char *p)
{
    if (p[0] < 0x20 || p[0] == 0x7f)
        return 1;
    return p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0 ? 2 : 0;
}

ith_quoted ith_quote(const char *text)
{
    ith_quoted out;
    /* cut: the longest length that ends between two characters and leaves room for "..." */
    size_t length = 0, cut = 0;
    const unsigned char *p = (const unsigned char *)(text ? text : "");
    while (*p && length < sizeof out.text - 1) {
        if ((*p & 0xc0) != 0x80 && length <= sizeof out.text - sizeof "...")
            cut = length;
        size_t control = control_bytes(p);
        out.text[length++] = control ? '?' : (char)*p;
        p += control ? control : 1;
    }
    out.text[length] = '\0';
    if (*p)
        memcpy(out.text + cut, "...", sizeof "...");
    return out;
}
