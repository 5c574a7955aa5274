/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces control characters, and bytes that are no UTF-8, in text from files. */
#include "quote.h"

#include "../base/control.h"

#include <string.h>

ith_quoted ith_quote(const char *text)
{
    ith_quoted out;
    /* cut: the longest length that ends between two characters and leaves room for "..." */
    size_t length = 0, cut = 0;
    const char *p = text ? text : "";
    while (*p) {
        bool shown;
        size_t bytes = ith_shown_bytes(p, &shown), written = shown ? bytes : 1;
        if (length <= sizeof out.text - sizeof "...")
            cut = length;
        if (length + written >= sizeof out.text)
            break;
        memcpy(out.text + length, shown ? p : "?", written);
        length += written, p += bytes;
    }
    out.text[length] = '\0';
    if (*p)
        memcpy(out.text + cut, "...", sizeof "...");
    return out;
}
