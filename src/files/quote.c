/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces control characters in text from files. */
#include "quote.h"

#include "../base/control.h"

#include <string.h>

ith_quoted ith_quote(const char *text)
{
    ith_quoted out;
    /* cut: the longest length that ends between two characters and leaves room for "..." */
    size_t length = 0, cut = 0;
    const char *p = text ? text : "";
    while (*p && length < sizeof out.text - 1) {
        if ((*p & 0xc0) != 0x80 && length <= sizeof out.text - sizeof "...")
            cut = length;
        size_t control = ith_control_bytes(p);
        out.text[length++] = control ? '?' : *p;
        p += control ? control : 1;
    }
    out.text[length] = '\0';
    if (*p)
        memcpy(out.text + cut, "...", sizeof "...");
    return out;
}
